#include "tests/executor/tensor_device.h"

#include <gtest/gtest.h>

#include "executor/device.h"
#include "tests/executor/device_cases.h"

/// What ranks do on a GPU, done on the host: the same kernels, the same branches, without the device.
namespace foretrain {
namespace {

using namespace executor_fixtures;

Besides on_tensors() {
  Besides besides;
  besides.device = &tensor_device;
  return besides;
}

TEST(TensorDevice, EveryModelEqualsTheHostsLoops) {
  expect_models_equal(on_tensors());
}

TEST(TensorDevice, EveryOptimizerEqualsTheHostsLoops) {
  expect_optimizers_equal(on_tensors());
}

class TensorMatrix : public testing::TestWithParam<Row> {};

TEST_P(TensorMatrix, EqualsTheHostsLoops) {
  expect_equal_to_one_process(plan_of(GetParam()), kSteps, {}, on_tensors());
}

INSTANTIATE_TEST_SUITE_P(Pairs, TensorMatrix, testing::ValuesIn(rows_for(4)),
                         [](const testing::TestParamInfo<Row>& one) { return name_of(one.param); });

TEST(TensorDevice, LowerPrecisionsAreWithinTheirBounds) {
  expect_lower_precisions_equal(on_tensors());
}

TEST(TensorDevice, TimesOfOpsFollowOneAnother) {
  Plan plan = plan_of(llama_like(), Layout{});
  plan.layout.sharding.kind = ShardingKind::none;
  const RunOutcome outcome = run_threads(plan, 1, {}, true, on_tensors());
  const StepRecord& record = outcome.records[0][0];
  ASSERT_FALSE(record.ops.empty());
  double before = 0;
  for (const OpRecord& op : record.ops) {
    EXPECT_EQ(op.start, before);
    EXPECT_GE(op.end, op.start);
    before = op.end;
  }
  EXPECT_LE(before, record.seconds);
}

TEST(GpuDevice, SaysWhatIsMissingWhereThereIsNone) {
  const auto device = gpu_device(0);
  if (device) GTEST_SKIP() << "there is " << (*device)->description();
  EXPECT_GT(device.error().message.size(), 20U);
  EXPECT_EQ(device.error().message.find("Exception raised"), std::string::npos) << "LibTorch's own source is no reason";
}

} // namespace
} // namespace foretrain
