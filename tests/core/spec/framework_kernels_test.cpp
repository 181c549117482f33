#include "core/spec/framework_kernels.h"

#include <gtest/gtest.h>

#include "core/spec/intervals.h"
#include "core/spec/presets.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

const std::filesystem::path kData = test::source_folder() / "data";

struct Loaded {
  Semantics semantics;
  Calibration calibration;
  DeviceSpec device;
};

Loaded load(const std::string& semantics, const std::string& device) {
  const DataFolder data{kData};
  DeviceSpec spec = data.device(device).value();
  Calibration calibration = load_calibration(kData, spec).value();
  return {data.semantics(semantics).value(), std::move(calibration), std::move(spec)};
}

// arXiv:2307.08691: FlashAttention-2 is about twice as fast as FlashAttention; llm-foundry's benchmarks ran its Triton
// port.
TEST(FrameworkKernels, AnOlderGenerationOfAttentionIsSlower) {
  for (const char* device : {"a100-sxm-80gb", "h100-sxm-80gb"}) {
    const Loaded l = load("composer", device);
    const OnDevice own = on_device(l.semantics, l.calibration, l.device, kData).value();
    const double ratio = own.calibration.attention.heads[0].forward / l.calibration.attention.heads[0].forward;
    EXPECT_GT(ratio, 0.3) << device;
    EXPECT_LT(ratio, 0.6) << device;
    EXPECT_EQ(own.calibration.gemm, l.calibration.gemm) << "products are the library's";
  }
}

TEST(FrameworkKernels, LaunchTimesFollowTheHostsOfTheDevice) {
  const Loaded a100 = load("megatron-core", "a100-sxm-80gb");
  const Loaded h100 = load("megatron-core", "h100-sxm-80gb");
  const OnDevice slow = on_device(a100.semantics, a100.calibration, a100.device, kData).value();
  const OnDevice fast = on_device(h100.semantics, h100.calibration, h100.device, kData).value();
  EXPECT_EQ(slow.semantics.host_per_layer, a100.semantics.host_per_layer) << "A100 systems are the reference";
  EXPECT_LT(fast.semantics.host_per_layer, slow.semantics.host_per_layer);
}

TEST(FrameworkKernels, AFolderWithoutTheFileIsAnError) {
  const Loaded l = load("composer", "a100-sxm-80gb");
  EXPECT_FALSE(on_device(l.semantics, l.calibration, l.device, "/nowhere"));
  EXPECT_FALSE(read_intervals("/nowhere"));
}

TEST(Intervals, SurviveWritingAndReading) {
  const Intervals intervals = read_intervals(kData).value();
  EXPECT_EQ(intervals_from(to_json(intervals), "again").value(), intervals);
  for (const auto& level : intervals.time)
    for (const Interval& interval : level) EXPECT_LT(interval.low, interval.high);
}

TEST(Intervals, OfAPredictionScaleItsFigures) {
  Prediction prediction;
  prediction.evidence = Evidence::fitted;
  prediction.step_time = Seconds(2);
  prediction.memory.resize(2);
  prediction.memory[1].device = Bytes(1000);
  Intervals intervals;
  auto& fitted = intervals.time[static_cast<std::size_t>(Evidence::fitted)];
  fitted[static_cast<std::size_t>(Pace::kernels)] = {0.9, 1.2, 0.95, 1.05, 100};
  fitted[static_cast<std::size_t>(Pace::launches)] = {0.5, 2, 0.9, 1.1, 100};
  intervals.memory = {0.8, 1.1, 0.9, 1.05, 100};
  set_intervals(prediction, intervals);
  EXPECT_DOUBLE_EQ(prediction.step_time_interval[0].value, 1.8);
  EXPECT_DOUBLE_EQ(prediction.step_time_interval[1].value, 2.4);
  EXPECT_EQ(prediction.memory_interval[0], Bytes(800)) << "of the fullest stage";
  prediction.time[static_cast<std::size_t>(TimePart::host)] = Seconds(1);
  set_intervals(prediction, intervals);
  EXPECT_DOUBLE_EQ(prediction.step_time_interval[1].value, 4) << "half of the step waits for the host";
}

} // namespace
} // namespace foretrain
