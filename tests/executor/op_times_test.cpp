#include "executor/op_times.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

StepRecord step_of(double seconds) {
  StepRecord record;
  OpRecord op;
  op.start = 1;
  op.end = 1 + seconds;
  record.ops.push_back(op);
  return record;
}

TEST(OpTimes, MeanLeavesOutTheSlowestAndTheFastestTenth) {
  OpTimes times;
  for (const double seconds : {0.5, 0.25, 0.75, 0.5, 0.5, 0.5, 0.5, 0.5, 9.0, 0.001}) times.add(step_of(seconds));
  const Json json = times.to_json(0)["op_times"];
  EXPECT_NEAR(json["mean_s"][0].get<double>(), (6 * 0.5 + 0.25 + 0.75) / 8, 1e-6);
  EXPECT_NEAR(json["median_s"][0].get<double>(), 0.5, 1e-6);
}

TEST(OpTimes, FewSamplesAreAllInTheMean) {
  OpTimes times;
  for (const double seconds : {0.25, 0.5, 1.5}) times.add(step_of(seconds));
  EXPECT_NEAR(times.to_json(0)["op_times"]["mean_s"][0].get<double>(), 0.75, 1e-6);
}

} // namespace
} // namespace foretrain
