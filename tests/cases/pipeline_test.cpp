#include "tests/cases/cases.h"

/// Reports of pipelines that hung or were refused in words that nobody understood. The schedules themselves are tested
/// in tests/core/program/schedules; here is what a user of a plan sees.
namespace foretrain {
namespace {

using namespace cases;

Plan pipeline(int pp, int chunks, int micro_batches, const std::string& semantics, const std::string& schedule) {
  Plan plan = plan_of("llama3-8b", "dgx-h100", 8, 4096, micro_batches, semantics);
  plan.model.layers = 48; // divides over 4, 6 and 8 stages of up to two chunks
  plan.cluster.tiers.front().fanout = pp;
  plan.layout.pp = pp;
  plan.layout.schedule = {schedule, chunks};
  if (semantics == "torchtitan") plan.layout.sharding.kind = ShardingKind::parameters;
  return plan;
}

// NVIDIA-NeMo/Speech#14288: virtual stages with pp 6 and three micro-batches died with a message about a range.
TEST(PipelineCases, InterleavedSaysHowManyMicroBatchesItNeeds) {
  const Plan plan = pipeline(6, 2, 3, "megatron-core", "interleaved");
  const Rejection rejection = rejection_of(plan, semantics_of(plan));
  EXPECT_EQ(rejection.rule, "schedule-micro-batches");
  EXPECT_EQ(rejection.needed, 6);
  EXPECT_EQ(rejection.available, 3);
  EXPECT_NE(rejection.reason.find("micro-batches"), std::string::npos);
  EXPECT_FALSE(rejection.nearest.empty());
  EXPECT_TRUE(is_legal(pipeline(6, 2, 6, "megatron-core", "interleaved")));
}

// NVIDIA/bionemo-framework#286: the constraint held for training and was forgotten elsewhere; here every engine asks
// it.
TEST(PipelineCases, EveryEngineRefusesTheSameSchedules) {
  const Plan plan = pipeline(6, 2, 3, "megatron-core", "interleaved");
  for (const Engine engine : {Engine::slots, Engine::replay, Engine::simgrid}) {
    const auto prediction = predicted(plan, engine);
    ASSERT_TRUE(prediction) << to_string(prediction.error());
    EXPECT_EQ(prediction->verdict, Verdict::illegal);
    EXPECT_EQ(prediction->rejections.front().rule, "schedule-micro-batches");
  }
}

// pytorch/torchtitan#775, pytorch PR#144702: 1F1B with one micro-batch on eight stages hangs, GPipe runs. A forecast
// finishes and says so.
TEST(PipelineCases, TooFewMicroBatchesAreFlagged) {
  const auto says_hang = [](const Prediction& prediction) {
    return std::any_of(prediction.notes.begin(), prediction.notes.end(),
                       [](const std::string& note) { return note.find("hangs") != std::string::npos; });
  };
  for (const Engine engine : {Engine::slots, Engine::replay}) {
    const auto alternating = predicted(pipeline(8, 1, 1, "torchtitan", "1f1b"), engine);
    ASSERT_TRUE(alternating) << to_string(alternating.error());
    EXPECT_GT(alternating->step_time.value, 0);
    EXPECT_TRUE(says_hang(*alternating));
    const auto gpipe = predicted(pipeline(8, 1, 1, "torchtitan", "gpipe"), engine);
    ASSERT_TRUE(gpipe) << to_string(gpipe.error());
    EXPECT_FALSE(says_hang(*gpipe));
    const auto filled = predicted(pipeline(8, 1, 8, "torchtitan", "1f1b"), engine);
    ASSERT_TRUE(filled) << to_string(filled.error());
    EXPECT_FALSE(says_hang(*filled));
  }
}

} // namespace
} // namespace foretrain
