#include "planner/calibrate.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "simulator/cost.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

// A machine that is known: what calibrate finds must predict it.
constexpr double kLaunch = 3e-6;    ///< per kernel
constexpr double kOverhead = 5e-6;  ///< more per product
constexpr double kForward = 60e9;   ///< FLOP/s of products
constexpr double kInput = 50e9;     ///< of gradients of inputs
constexpr double kWeight = 70e9;    ///< of gradients of weights
constexpr double kAttention = 20e9; ///< forward
constexpr double kHidden = 96;      ///< keys that a block meets and a mask hides
constexpr double kCached = 30e9;    ///< of norms, which stay in a cache
constexpr double kWait = 300e-6;    ///< of a collective in a step
constexpr double kStretch = 0.5;    ///< of its own time
constexpr double kPacked = 32;      ///< tokens in the time of which a weight is packed
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
double product_seconds(const Kernel& kernel, double rate) {
  return kLaunch + kOverhead + kernel.flop * (1 + kPacked / static_cast<double>(kernel.m)) / rate;
}
Kernel stream(double bytes) {
  Kernel kernel;
  kernel.bytes = bytes;
  return kernel;
}

double attention_seconds(std::int64_t tokens, bool forward) {
  return kLaunch + attention(tokens, forward).flop * (1 + kHidden / static_cast<double>(tokens)) /
                       (forward ? kAttention : kAttentionBack);
}

/// A step of two ranks with so many collectives of `bytes`, and products.
ProbedStep step_with(double bytes, int count) {
  ProbedStep step;
  step.ranks = 2;
  Op op;
  op.kind = OpKind::compute;
  op.kernels = {product(256, 256, 64, GemmRole::forward)};
  step.compute.assign(50, op);
  step.seconds = 50 * product_seconds(op.kernels.front(), kForward);
  for (int i = 0; i < count; ++i) {
    step.transfers.push_back({Collective::all_gather, DType::fp32, Bytes(static_cast<std::int64_t>(bytes))});
    step.seconds += kWait + (1 + kStretch) * (kAlpha + bytes / 2 / kLink);
  }
  return step;
}

Probes probes() {
  Probes all;
  all.ranks = 2;
  all.source = "made up";
  for (const std::int64_t size : {64, 128, 256, 512}) {
    const Kernel forward = product(size, size, 64, GemmRole::forward);
    const Kernel input = product(size, size, 64, GemmRole::input_gradient);
    const Kernel weight = product(size, size, 64, GemmRole::weight_gradient);
    all.ops.push_back({{forward}, product_seconds(forward, kForward)});
    all.ops.push_back({{input}, product_seconds(input, kInput)});
    all.ops.push_back({{weight}, product_seconds(weight, kWeight)});
    all.ops.push_back({{attention(size, true)}, attention_seconds(size, true)});
    all.ops.push_back({{attention(size, false)}, attention_seconds(size, false)});
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
  expect(forward, product_seconds(forward, kForward));
  const Kernel weight = product(300, 200, 100, GemmRole::weight_gradient);
  expect(weight, product_seconds(weight, kWeight));
  const Kernel input = product(300, 200, 100, GemmRole::input_gradient);
  expect(input, product_seconds(input, kInput));
  expect(attention(300, true), attention_seconds(300, true));
  expect(attention(300, false), attention_seconds(300, false));
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

TEST(Calibrate, TakesBothGradientsForEquallyFastWhereEveryOpComputesBoth) {
  Probes both = probes();
  std::erase_if(both.ops, [](const ProbedOp& op) {
    const Kernel& kernel = op.kernels.front();
    return kernel.kind == KernelKind::gemm && kernel.role != GemmRole::forward;
  });
  for (const std::int64_t size : {64, 128, 256, 512}) {
    const Kernel input = product(size, size, 64, GemmRole::input_gradient);
    const Kernel weight = product(size, size, 64, GemmRole::weight_gradient);
    both.ops.push_back({{input, weight}, 2 * product_seconds(input, kInput)});
  }
  const auto found = calibrate(both, cluster());
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_NEAR(found->gemm.input_gradient, kInput / kForward, kSame);
  EXPECT_NEAR(found->gemm.weight_gradient, kInput / kForward, kSame);
}

TEST(Calibrate, GivesOperatorsFiguresOfTheirOwn) {
  Probes all = probes();
  for (const double bytes : {1e5, 2e5, 4e5, 8e5}) {
    all.ops.push_back({{stream(bytes)}, kLaunch + bytes / kCached, Segment::norm, Pass::forward});
    all.ops.push_back({{stream(bytes)}, 2 * kLaunch + bytes / kCached * 2, Segment::norm, Pass::input});
    all.ops.push_back({{stream(1e9)}, 1e9 / kBandwidth, Segment::optimizer, Pass::forward});
    all.ops.push_back({{stream(bytes)}, bytes / kBandwidth, Segment::gradient_norm, Pass::forward});
    all.ops.push_back({{stream(bytes)}, 1e-9, Segment::gradient_norm, Pass::forward});
  }
  all.ops.push_back({{stream(1e5)}, kLaunch + 1e5 / kBandwidth, Segment::rope, Pass::forward}); // too few of these
  const ClusterSpec machine = cluster();
  const auto found = calibrate(all, machine);
  ASSERT_TRUE(found) << to_string(found.error());
  const auto read = calibration_from(to_json(*found), "calibration.json");
  ASSERT_TRUE(read) << to_string(read.error());
  ASSERT_EQ(read->operators.size(), 4U); // and two that are seen at one size, or do their work now and then
  for (const OperatorModel& each : read->operators)
    if (each.op == "optimizer" || each.op == "gradient_norm") {
      EXPECT_NEAR(each.bandwidth.value / (each.op == "optimizer" ? kBandwidth : 2 * kBandwidth), 1, kSame) << each.op;
      EXPECT_EQ(each.launch.value, 0) << each.op;
    }
  const auto cost = CostModel::make(machine, *read, {Precision::fp32, false});
  ASSERT_TRUE(cost) << to_string(cost.error());
  Op op;
  op.kernels = {stream(3e5), stream(1e5)};
  op.segment = Segment::norm;
  EXPECT_NEAR(cost->compute(op).seconds / (2 * kLaunch + 4e5 / kCached), 1, kSame);
  op.pass = Pass::backward;
  EXPECT_NEAR(cost->compute(op).seconds / (4 * kLaunch + 4e5 / kCached * 2), 1, kSame);
  op.segment = Segment::rope; // as memory-bound ops in general
  EXPECT_DOUBLE_EQ(cost->compute(op).seconds, cost->kernel(stream(3e5)).seconds + cost->kernel(stream(1e5)).seconds);

  Calibration unknown = *read;
  unknown.operators.front().op = "nrom";
  const auto refused = CostModel::make(machine, unknown, {Precision::fp32, false});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("nrom"), std::string::npos);
}

TEST(Calibrate, FindsWhatAStepAddsToItsCollectives) {
  Probes all = probes();
  const double small = 64 * 64 * 16; // sizes of the tables: what lies between is interpolated
  const double large = 512 * 512 * 16;
  all.steps = {step_with(small, 200), step_with(large, 20)};
  const auto found = calibrate(all, cluster());
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_NEAR(found->in_step.wait.value / kWait, 1, 0.02);
  EXPECT_NEAR(found->in_step.stretch / kStretch, 1, 0.02);
  EXPECT_EQ(found->spread, 0);
  EXPECT_EQ(found->interference.inside, 0.99); // a processor runs its collectives itself
  const auto cost = CostModel::make(cluster(), *found, {Precision::fp32, false});
  GroupShape pair;
  pair.size = 2;
  pair.per_tier[0] = 2;
  const Bytes bytes(static_cast<std::int64_t>(large));
  const double alone = cost->by_itself(Collective::all_gather, pair, DType::fp32, bytes).seconds;
  EXPECT_DOUBLE_EQ(cost->collective(Collective::all_gather, pair, DType::fp32, bytes).seconds,
                   found->in_step.wait.value + (1 + found->in_step.stretch) * alone);
  for (ProbedStep& step : all.steps) step.seconds = 0; // as short as nothing: nothing is added
  EXPECT_EQ(calibrate(all, cluster())->in_step, InStepModel{});
}

/// A step that takes less than its parts by themselves (ranks that share processors lend them while they wait) counts
/// too: left out, the other step would alone say what every small collective takes.
TEST(Calibrate, HearsStepsThatAreShorterThanTheirParts) {
  Probes all = probes();
  all.steps = {step_with(64 * 64 * 16, 200), step_with(512 * 512 * 16, 2)};
  double parts = 0; // of the first, by themselves
  for (const Op& op : all.steps[0].compute) parts += product_seconds(op.kernels.front(), kForward);
  parts += 200 * (kAlpha + 64 * 64 * 16 / 2 / kLink);
  all.steps[0].seconds = 0.95 * parts;
  all.steps[1].seconds *= 1.1;
  const auto found = calibrate(all, cluster());
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_LT(200 * found->in_step.wait.value, 0.05 * parts);
}

/// Runs of one job have one number of tokens, which does not tell what a weight takes from what a token takes.
TEST(Calibrate, KeepsWhatOneNumberOfTokensDoesNotTell) {
  const Calibration whole = calibrate(probes(), cluster()).value();
  EXPECT_NEAR(whole.gemm.half_tokens, kPacked, kSame * kPacked);
  Probes some = probes();
  some.ops.clear();
  for (const std::int64_t width : {64, 128, 256, 512}) {
    const Kernel forward = product(128, width, 64, GemmRole::forward);
    some.ops.push_back({{forward}, product_seconds(forward, kForward)});
    const double bytes = static_cast<double>(width) * 4096;
    some.ops.push_back({{stream(bytes), stream(2 * bytes)}, 2 * kLaunch + 3 * bytes / kBandwidth});
  }
  const auto after = recalibrate(whole, some, cluster());
  ASSERT_TRUE(after) << to_string(after.error());
  EXPECT_EQ(after->gemm.half_tokens, whole.gemm.half_tokens);
  EXPECT_NEAR(after->gemm.efficiency / whole.gemm.efficiency, 1, kSame);
}

TEST(Calibrate, LearnsFromOrdinaryOpsAndKeepsWhatTheyDoNotShow) {
  const Calibration whole = calibrate(probes(), cluster()).value();
  Calibration before = whole;
  before.gemm.efficiency *= 3;
  before.memory.launch = Seconds(before.memory.launch.value * 5);
  before.spread = 0.07;
  before.in_step = {Seconds(1e-3), 0.5};
  Probes ops = probes();
  ops.collectives.clear();
  const auto after = recalibrate(before, ops, cluster());
  ASSERT_TRUE(after) << to_string(after.error());
  EXPECT_DOUBLE_EQ(after->gemm.efficiency, whole.gemm.efficiency);
  EXPECT_EQ(after->memory.launch, whole.memory.launch);
  EXPECT_EQ(after->attention.heads, whole.attention.heads);
  EXPECT_EQ(after->operators, whole.operators);
  EXPECT_EQ(after->collectives, before.collectives);
  EXPECT_EQ(after->inner, before.inner);
  EXPECT_EQ(after->spread, before.spread);
  EXPECT_EQ(after->in_step, before.in_step);
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
