#include "planner/calibrate.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "simulator/cost.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

// A machine that is known: what calibrate finds must predict it.
constexpr double kLaunch = 3e-6;   ///< per kernel
constexpr double kOverhead = 5e-6; ///< more per product
constexpr double kForward = 60e9;  ///< FLOP/s of products
constexpr double kBackward = 50e9;
constexpr double kAttention = 20e9; ///< forward
constexpr double kAttentionBack = 15e9;
constexpr double kBandwidth = 8e9;
constexpr double kAlpha = 40e-6; ///< of a send
constexpr double kLink = 1.5e9;
constexpr double kSame = 1e-3; ///< relative; the synthetic times are exact, the fit solves in double

ClusterSpec cluster() {
  const DataFolder data{test::source_folder() / "data"};
  return data.cluster("cpu-host").value();
}

Kernel product(std::int64_t m, std::int64_t n, std::int64_t k, GemmRole role) {
  Kernel kernel;
  kernel.kind = KernelKind::gemm;
  kernel.role = role;
  kernel.dtype = DType::fp32;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.flop = 2.0 * static_cast<double>(m * n * k);
  return kernel;
}
Kernel attention(std::int64_t tokens, bool forward) {
  Kernel kernel;
  kernel.kind = forward ? KernelKind::attention_forward : KernelKind::attention_backward;
  kernel.dtype = DType::fp32;
  kernel.m = kernel.n = tokens;
  kernel.k = kernel.v_dim = 64;
  kernel.heads = 4;
  kernel.flop = static_cast<double>(tokens * tokens) * 64 * 4 * 2 * (forward ? 1 : 2.5);
  return kernel;
}
Kernel stream(double bytes) {
  Kernel kernel;
  kernel.bytes = bytes;
  return kernel;
}

Probes probes() {
  Probes all;
  all.ranks = 2;
  all.source = "made up";
  for (const std::int64_t size : {64, 128, 256, 512}) {
    const Kernel forward = product(size, size, 64, GemmRole::forward);
    const Kernel input = product(size, size, 64, GemmRole::input_gradient);
    const Kernel weight = product(size, size, 64, GemmRole::weight_gradient);
    all.ops.push_back({{forward}, kLaunch + kOverhead + forward.flop / kForward});
    all.ops.push_back({{input, weight}, 2 * (kLaunch + kOverhead) + 2 * input.flop / kBackward});
    all.ops.push_back({{attention(size, true)}, kLaunch + attention(size, true).flop / kAttention});
    all.ops.push_back({{attention(size, false)}, kLaunch + attention(size, false).flop / kAttentionBack});
    const double bytes = static_cast<double>(size * size) * 16;
    all.ops.push_back({{stream(bytes), stream(2 * bytes)}, 2 * kLaunch + 3 * bytes / kBandwidth});
    all.collectives.push_back({"all-gather", 2, bytes, kAlpha + bytes / 2 / kLink});
    all.collectives.push_back({"all-reduce", 2, bytes, 2 * (kAlpha + bytes / 2 / kLink)});
  }
  return all;
}

TEST(Calibrate, FindsAMachineThatIsKnown) {
  const ClusterSpec machine = cluster();
  const auto found = calibrate(probes(), machine);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->name, machine.device.name);
  EXPECT_EQ(found->gemm.evidence, Evidence::fitted);
  const auto read = calibration_from(to_json(*found), "calibration.json"); // what is written can be read
  ASSERT_TRUE(read) << to_string(read.error());

  const auto cost = CostModel::make(machine, *read, {Precision::fp32, false});
  ASSERT_TRUE(cost) << to_string(cost.error());
  const auto expect = [&](const Kernel& kernel, double seconds) {
    EXPECT_NEAR(cost->kernel(kernel).seconds / seconds, 1, kSame) << kernel.m;
  };
  const Kernel forward = product(300, 200, 100, GemmRole::forward);
  expect(forward, kLaunch + kOverhead + forward.flop / kForward);
  const Kernel weight = product(300, 200, 100, GemmRole::weight_gradient);
  expect(weight, kLaunch + kOverhead + weight.flop / kBackward);
  expect(attention(300, true), kLaunch + attention(300, true).flop / kAttention);
  expect(attention(300, false), kLaunch + attention(300, false).flop / kAttentionBack);
  expect(stream(1e6), kLaunch + 1e6 / kBandwidth);
  EXPECT_NEAR(cost->transfer(0, Bytes(1 << 20)).seconds / (kAlpha + (1 << 20) / kLink), 1, kSame);

  GroupShape pair;
  pair.size = 2;
  pair.per_tier[0] = 2;
  const double bytes = 128 * 128 * 16;
  const Cost gather =
      cost->collective(Collective::all_gather, pair, DType::fp32, Bytes(static_cast<std::int64_t>(bytes)));
  EXPECT_LE(gather.evidence, Evidence::interpolated);
  EXPECT_NEAR(gather.seconds / (kAlpha + bytes / 2 / kLink), 1, 0.02); // between sizes of the table's grid
}

TEST(Calibrate, LearnsFromOrdinaryOpsAndKeepsWhatTheyDoNotShow) {
  const Calibration whole = calibrate(probes(), cluster()).value();
  Calibration before = whole;
  before.gemm.efficiency *= 3;
  before.memory.launch = Seconds(before.memory.launch.value * 5);
  before.spread = 0.07;
  Probes ops = probes();
  ops.collectives.clear();
  const auto after = recalibrate(before, ops, cluster());
  ASSERT_TRUE(after) << to_string(after.error());
  EXPECT_DOUBLE_EQ(after->gemm.efficiency, whole.gemm.efficiency);
  EXPECT_EQ(after->memory.launch, whole.memory.launch);
  EXPECT_EQ(after->attention.heads, whole.attention.heads);
  EXPECT_EQ(after->collectives, before.collectives);
  EXPECT_EQ(after->inner, before.inner);
  EXPECT_EQ(after->spread, before.spread);
  ops.ops.clear();
  EXPECT_FALSE(recalibrate(before, ops, cluster()));
}

TEST(Calibrate, SaysWhatIsMissing) {
  EXPECT_FALSE(calibrate({}, cluster()));
  Probes some = probes();
  ClusterSpec unknown = cluster();
  unknown.device.fp32.reset();
  const auto without_peak = calibrate(some, unknown);
  ASSERT_FALSE(without_peak);
  EXPECT_NE(without_peak.error().message.find("unknown"), std::string::npos);
  std::erase_if(some.ops, [](const ProbedOp& op) { return op.kernels.front().kind == KernelKind::gemm; });
  EXPECT_FALSE(calibrate(some, cluster()));
}

} // namespace
} // namespace foretrain
