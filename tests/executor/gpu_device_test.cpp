#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "executor/device.h"
#include "executor/parameters.h"
#include "tests/executor/device_cases.h"

/// One rank of this process on a GPU (ctest -L gpu): skipped, with the reason, where there is none.
namespace foretrain {
namespace {

using namespace executor_fixtures;

class OnOneGpu : public testing::Test {
protected:
  void SetUp() override {
    auto device = gpu_device(0);
    if (!device) GTEST_SKIP() << to_string(device.error());
    device_ = std::move(*device);
    device_->enter();
    besides_.device = [] { return std::move(*gpu_device(0)); };
  }
  [[nodiscard]] at::Tensor on(const at::Tensor& tensor) const { return tensor.to(device_->place()); }
  std::unique_ptr<Device> device_;
  Besides besides_;
};

TEST_F(OnOneGpu, EveryModelEqualsTheProcessor) {
  expect_models_equal(besides_);
}

TEST_F(OnOneGpu, EveryOptimizerEqualsTheProcessor) {
  expect_optimizers_equal(besides_);
}

TEST_F(OnOneGpu, RowsOfTheMatrixForOneRankEqualTheProcessor) {
  for (const Row& row : rows_for(1)) {
    SCOPED_TRACE(name_of(row));
    expect_equal_to_one_process(executor_fixtures::plan_of(row), kSteps, {}, besides_);
  }
}

TEST_F(OnOneGpu, LowerPrecisionsAreWithinTheirBounds) {
  expect_lower_precisions_equal(besides_);
}

TEST_F(OnOneGpu, InitialWeightsHaveTheProcessorsBits) {
  Plan plan = plan_of(llama_like(), Layout{});
  plan.layout.sharding.kind = ShardingKind::none;
  const Program program = lowered(plan);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const ParameterTable here(plan, program, 0, 1, {type, type, device_->place()});
    const ParameterTable there(plan, program, 0, 1, {type, type, at::kCPU});
    for (std::size_t i = 0; i < there.entries().size(); ++i)
      EXPECT_TRUE(at::equal(here.entries()[i].owned_weight.cpu(), there.entries()[i].owned_weight))
          << there.entries()[i].name;
  }
}

TEST_F(OnOneGpu, TwoStepsOfOneSeedHaveTheSameBits) {
  Plan plan = plan_of(mixtral_like(), Layout{});
  plan.layout.sharding.kind = ShardingKind::none;
  plan.job.precision = Precision::fp32;
  const RunOutcome first = run_threads(plan, 3, {}, true, besides_);
  const RunOutcome second = run_threads(plan, 3, {}, true, besides_);
  EXPECT_EQ(first.losses, second.losses);
  for (const auto& [name, weight] : first.weights) EXPECT_TRUE(at::equal(weight, second.weights.at(name))) << name;
}

TEST_F(OnOneGpu, PlacesOfTheClockRiseAndWaitForTheDevice) {
  device_->start_clock();
  at::Tensor x = at::ones({1024, 1024}, at::TensorOptions(at::kFloat).device(device_->place()));
  std::vector<int> places;
  for (int i = 0; i < 10; ++i) {
    places.push_back(device_->mark(true));
    x = at::mm(x, x).div_(1024);
    places.push_back(device_->mark(false));
  }
  const std::vector<double> times = device_->marks();
  for (std::size_t i = 1; i < places.size(); ++i)
    EXPECT_GE(times[static_cast<std::size_t>(places[i])], times[static_cast<std::size_t>(places[i - 1])]);
  EXPECT_GT(times.back(), 0);
}

TEST_F(OnOneGpu, PeaksAreOfTheLastStretch) {
  const auto bytes = at::TensorOptions(at::kByte).device(device_->place());
  const at::Tensor kept = at::empty({1 << 20}, bytes);
  (void)device_->take_peaks();
  { const at::Tensor more = at::empty({8 << 20}, bytes); }
  const Device::Peaks with = *device_->take_peaks();
  const Device::Peaks without = *device_->take_peaks();
  EXPECT_EQ(with.allocated - without.allocated, 8 << 20);
  EXPECT_GE(with.reserved, with.allocated);
}

TEST_F(OnOneGpu, MemoryOfTheHostIsPinnedAndCopiesBothWays) {
  at::Tensor host = device_->host_memory(1000, at::kDouble);
  EXPECT_TRUE(host.is_pinned());
  host.copy_(at::arange(1000, at::kDouble));
  at::Tensor here = on(host);
  here.add_(1);
  host.copy_(here, /*non_blocking=*/true);
  device_->synchronize();
  EXPECT_EQ(host[999].item<double>(), 1000);
}

} // namespace
} // namespace foretrain
