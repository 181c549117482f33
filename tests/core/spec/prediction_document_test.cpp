#include <limits>

#include <gtest/gtest.h>

#include "core/spec/io.h"

namespace foretrain {
namespace {

Prediction sample() {
  Prediction prediction;
  prediction.verdict = Verdict::oom;
  prediction.engine = Engine::simgrid;
  prediction.step_time = Seconds(0.1);
  prediction.time[3] = Seconds(0.1);
  prediction.memory = {StageMemory{Bytes(1), Bytes(2), Bytes(3), {}, "F"}};
  prediction.memory[0].parts[2] = Bytes(3);
  prediction.rejections = {{"r", "s", 1, 2, {"tp 1"}}};
  prediction.evidence = Evidence::measured;
  prediction.memory_interval = {Bytes(1), Bytes(9)};
  prediction.memory.push_back(prediction.memory[0]);
  prediction.notes = {"n", "a \"quoted\"\n\\ caf\xc3\xa9"};
  return prediction;
}

TEST(PredictionDocument, IsReadBackEqual) {
  EXPECT_EQ(prediction_from(to_json(sample()), "x").value(), sample());
}

TEST(PredictionDocument, IsTheSameWhenWrittenAsTextAtOnce) {
  Prediction illegal = sample();
  illegal.verdict = Verdict::illegal;
  Prediction unknown = sample();
  unknown.step_time = Seconds(std::numeric_limits<double>::quiet_NaN());
  Prediction odd = sample();
  odd.step_time = Seconds(1.0 / 3);
  odd.mfu_percent = 1e-300;
  odd.tokens_per_s_per_device = 123456789012345678.0;
  for (const Prediction& prediction : {sample(), Prediction(), illegal, unknown, odd}) {
    const auto text = parse_json(prediction_text(prediction), "x");
    ASSERT_TRUE(text) << to_string(text.error());
    EXPECT_EQ(*text, to_json(prediction));
  }
}

TEST(PredictionDocument, RefusesWhatIsNotOne) {
  EXPECT_FALSE(prediction_from(Json::array(), "x"));
  EXPECT_FALSE(prediction_from(Json{{"verdict", "perhaps"}}, "x"));
  EXPECT_FALSE(prediction_from(Json{{"memory", {{{"device_bytes", "many"}}}}}, "x"));
}

} // namespace
} // namespace foretrain
