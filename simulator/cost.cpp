#include "simulator/cost.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/program/names.h"

namespace foretrain {
namespace {

std::size_t slot(DType type) {
  return static_cast<std::size_t>(type);
}

double value_or_zero(const std::optional<FlopPerSecond>& rate) {
  return rate ? rate->value : 0;
}

/// Peaks by dtype. A device without a bf16 (fp16) figure runs it at its fp16 (bf16) rate, as tensor cores do; products
/// in fp32 take the fp32 pipe, or six bf16 passes where there is none.
std::array<double, 8> peaks_of(const DeviceSpec& device) {
  std::array<double, 8> peak{};
  const double bf16 = value_or_zero(device.bf16);
  const double fp16 = value_or_zero(device.fp16);
  constexpr double kPassesOfFp32 = 6; // XLA's highest precision: three-way split of both operands, six products kept
  peak[slot(DType::bf16)] = bf16 > 0 ? bf16 : fp16;
  peak[slot(DType::fp16)] = fp16 > 0 ? fp16 : bf16;
  peak[slot(DType::fp8)] = value_or_zero(device.fp8);
  peak[slot(DType::fp4)] = value_or_zero(device.fp4);
  peak[slot(DType::fp64)] = value_or_zero(device.fp64);
  const double fp32 = value_or_zero(device.fp32);
  peak[slot(DType::fp32)] = fp32 > 0 ? fp32 : peak[slot(DType::bf16)] / kPassesOfFp32;
  return peak;
}

/// The dtype of the products of a precision recipe, and its name in messages.
std::pair<DType, const char*> products_of(Precision precision) {
  switch (precision) {
  case Precision::fp64:
    return {DType::fp64, "fp64"};
  case Precision::fp32:
    return {DType::fp32, "fp32"};
  case Precision::bf16:
    return {DType::bf16, "bf16"};
  case Precision::fp16:
    return {DType::fp16, "fp16"};
  case Precision::fp8_delayed:
  case Precision::fp8_current:
  case Precision::fp8_blockwise:
  case Precision::mxfp8:
    return {DType::fp8, "fp8"};
  case Precision::nvfp4:
    return {DType::fp4, "fp4"};
  }
  return {DType::bf16, "bf16"};
}

tl::unexpected<Error> unknown_figure(const std::string& owner, const std::string& figure, const char* purpose) {
  return fail("", owner + ": '" + figure + "' is unknown, and " + purpose, "state it in the device or cluster file");
}

Result<void> check_tiers(const ClusterSpec& cluster) {
  if (cluster.tiers.empty()) return fail("", "cluster '" + cluster.name + "' has no tiers");
  if (cluster.tiers.size() > static_cast<std::size_t>(kTiers))
    return fail("", "cluster '" + cluster.name + "' has " + std::to_string(cluster.tiers.size()) + " tiers",
                "at most " + std::to_string(kTiers));
  for (const TierSpec& tier : cluster.tiers) {
    if (tier.fanout > 1 && !(tier.link.bandwidth.value > 0))
      return unknown_figure("tier '" + tier.name + "'", "bandwidth", "its transfers need it");
    if (!(tier.background_load >= 0 && tier.background_load < 1) || !(tier.oversubscription >= 1))
      return fail("", "tier '" + tier.name + "' has no capacity left or a negative load",
                  "oversubscription >= 1, background_load in [0, 1)");
  }
  return {};
}

double decided(double stated, double calibrated) {
  return stated > 0 ? std::min(stated, 1.0) : calibrated;
}

/// log2 of seconds beyond the last size: bandwidth-bound, at the rate between the last two sizes, but never at less
/// than this share of the time per byte of the last (two noisy sizes must not promise a faster wire).
double beyond(const CollectiveTable& table, double log2_bytes) {
  constexpr double kLeastShare = 0.9;
  const std::size_t last = table.microseconds.size() - 1;
  const double end = table.microseconds[last] * 1e-6;
  const double bytes = std::exp2(table.log2_bytes[last]);
  const double slope = (end - table.microseconds[last - 1] * 1e-6) / (bytes - std::exp2(table.log2_bytes[last - 1]));
  return std::log2(end + (std::exp2(log2_bytes) - bytes) * std::max(slope, kLeastShare * end / bytes));
}

/// log2 of a table's seconds for 2^`log2_bytes` bytes: between sizes by the logarithm, below the first its time.
double log2_seconds(const CollectiveTable& table, double log2_bytes) {
  const std::vector<double>& sizes = table.log2_bytes;
  const auto above = std::lower_bound(sizes.begin(), sizes.end(), log2_bytes);
  if (above == sizes.begin()) return std::log2(table.microseconds.front() * 1e-6);
  if (above == sizes.end()) return beyond(table, log2_bytes);
  const auto right = static_cast<std::size_t>(above - sizes.begin());
  const double share = (log2_bytes - sizes[right - 1]) / (sizes[right] - sizes[right - 1]);
  const double low = std::log2(table.microseconds[right - 1] * 1e-6);
  const double high = std::log2(table.microseconds[right] * 1e-6);
  return low + (high - low) * share;
}

/// Whether two figures differ by no more than this ratio.
bool close_to(double value, double reference, double ratio) {
  return reference > 0 && value <= reference * ratio && value * ratio >= reference;
}

/// Whether what was measured over one link is as good as measured over the other.
bool same_link(const TierSpec& a, const TierSpec& b) {
  constexpr double kSameBandwidth = 1.05;
  constexpr double kSameLatency = 1.5;
  return a.background_load == b.background_load && a.link.efficiency == b.link.efficiency &&
         close_to(a.link.bandwidth.value, b.link.bandwidth.value, kSameBandwidth) &&
         close_to(a.link.latency.value, b.link.latency.value, kSameLatency);
}

} // namespace

Result<CostModel> CostModel::make(const ClusterSpec& cluster, const Calibration& calibration, const CostNeeds& needs) {
  const DeviceSpec& device = cluster.device;
  CostModel model;
  model.calibration_ = calibration;
  model.peak_ = peaks_of(device);
  const auto [dtype, name] = products_of(needs.precision);
  if (!(model.peak_[slot(DType::bf16)] > 0))
    return unknown_figure("device '" + device.name + "'", "bf16", "every duration needs a dense peak");
  if (!(model.peak_[slot(dtype)] > 0))
    return unknown_figure("device '" + device.name + "'", name, "the job's products run in it");
  if (!device.memory_bandwidth || !(device.memory_bandwidth->value > 0))
    return unknown_figure("device '" + device.name + "'", "memory_bandwidth", "memory-bound kernels need it");
  if (needs.host_link && (!cluster.host_link || !(cluster.host_link->value > 0)))
    return unknown_figure("cluster '" + cluster.name + "'", "host_link", "offloading needs it");
  const Result<void> tiers = check_tiers(cluster);
  if (!tiers) return tl::unexpected<Error>(tiers.error());
  if (calibration.attention.heads.empty() || !(calibration.gemm.efficiency > 0))
    return fail("", "calibration '" + calibration.name + "' has no GEMM or attention efficiency");
  if (device.multiprocessors && *device.multiprocessors > 0)
    model.calibration_.gemm.multiprocessors = *device.multiprocessors;
  model.memory_bandwidth_ =
      device.memory_bandwidth->value * calibration.memory.efficiency / calibration.memory.streaming;
  model.ranks_per_processor_ = cluster.ranks_per_processor;
  model.host_bandwidth_ = cluster.host_link ? cluster.host_link->value * calibration.memory.host : 0;
  model.set_tiers(cluster);
  model.set_tables(cluster);
  if (auto set = model.set_operators(); !set) return tl::unexpected<Error>(set.error());
  return model;
}

void CostModel::set_tiers(const ClusterSpec& cluster) {
  tier_count_ = static_cast<int>(cluster.tiers.size());
  double narrowest = 0; // per-rank rate through all tiers so far, network tiers only
  for (int i = 0; i < tier_count_; ++i) {
    const TierSpec& spec = cluster.tiers[index(i)];
    Tier& tier = tiers_[index(i)];
    tier.fabric = spec.fabric;
    tier.fanout = spec.fanout;
    tier.torus = spec.shape;
    tier.scale_up = spec.fabric == Fabric::switched || spec.fabric == Fabric::mesh || spec.fabric == Fabric::torus;
    const FabricModel& fabric = tier.scale_up ? calibration_.inner : calibration_.network;
    // A rank that leaves its tier-(i-1) group passes every link below; its switches' uplinks are thinned.
    double rate = spec.link.bandwidth.value * (1 - spec.background_load);
    if (i >= 2 && narrowest > 0) rate = std::min(rate, narrowest);
    if (i >= 2) rate /= cluster.tiers[index(i - 1)].oversubscription;
    narrowest = i >= 1 ? rate : 0;
    tier.bandwidth = rate;
    const double stated = spec.link.efficiency;
    tier.ring = decided(stated, fabric.efficiency);
    const double relative = tier.ring / fabric.efficiency;
    tier.all_to_all = std::min(1.0, fabric.all_to_all * relative);
    tier.point_to_point = std::min(1.0, fabric.point_to_point * relative);
    tier.step = fabric.steps * spec.link.latency.value;
    tier.step_small = fabric.steps_small * spec.link.latency.value;
    tier.small_share = fabric.small_share;
    tier.base = fabric.base.value;
    tier.reduction = spec.fabric == Fabric::switched ? fabric.reduction * relative : 0;
    tier.reduction_from = fabric.reduction_from;
  }
}

/// Formulas of the same device over other links.
CostModel CostModel::over(const ClusterSpec& cluster) const {
  CostModel model;
  model.calibration_.inner = calibration_.inner;
  model.calibration_.network = calibration_.network;
  model.set_tiers(cluster);
  return model;
}

/// A table holds for the links that it was measured on. On others each of its times takes as much more or less as the
/// formula says: with a table for some links and the formula for the rest, a slower link could be the faster one.
void CostModel::set_tables(const ClusterSpec& cluster) {
  constexpr double kSameEfficiency = 1.13; // presets state 0.8 to 0.95 for networks that reach 0.9
  if (!calibration_.inner_link) return;
  ClusterSpec here = cluster;
  for (std::size_t i = 0; i < here.tiers.size(); ++i) {
    const double reached = tiers_[i].scale_up ? calibration_.inner.efficiency : calibration_.network.efficiency;
    double& stated = here.tiers[i].link.efficiency;
    if (close_to(decided(stated, reached), reached, kSameEfficiency)) stated = 0;
  }
  const CostModel now = over(here);
  for (const CollectiveTable& measured : calibration_.collectives) {
    const bool several = measured.nodes > 1;
    if (several && cluster.tiers.size() < 2) continue;
    ClusterSpec there = here;
    there.tiers[0].link.bandwidth = *calibration_.inner_link;
    there.tiers[0].link.efficiency = 0;
    there.tiers[0].link.latency = LinkSpec{}.latency; // of a switch, where the table does not say its own
    if (!several && measured.latency) there.tiers[0].link.latency = *measured.latency;
    there.tiers[0].background_load = 0;
    if (several) {
      there.tiers[1].link = {.bandwidth = *measured.network, .latency = *measured.latency, .efficiency = 0};
      there.tiers[1].background_load = 0;
    }
    Table table;
    table.per_node = measured.per_node;
    table.nodes = measured.nodes;
    table.elsewhere =
        !same_link(here.tiers[0], there.tiers[0]) || (several && !same_link(here.tiers[1], there.tiers[1]));
    const CostModel then = over(there);
    for (int i = 0; i < kSizes; ++i)
      table.log2_seconds[static_cast<std::size_t>(i)] =
          log2_seconds(measured, i) + std::log2(now.anchored(measured, i) / then.anchored(measured, i));
    tables_[static_cast<std::size_t>(measured.kind)].push_back(table);
  }
  for (std::vector<Table>& list : tables_)
    std::sort(list.begin(), list.end(), [](const Table& a, const Table& b) {
      return a.per_node != b.per_node ? a.per_node < b.per_node : a.nodes < b.nodes;
    });
}

bool works_on_gradients(Pass pass) {
  return pass == Pass::backward || pass == Pass::input || pass == Pass::weight;
}

/// Operators that have figures of their own.
Result<void> CostModel::set_operators() {
  for (const OperatorModel& given : calibration_.operators) {
    int segment = 0;
    while (segment < kSegments && id_of(static_cast<Segment>(segment)) != given.op) ++segment;
    if (segment == kSegments)
      return fail("", "calibration '" + calibration_.name + "': no operator is called '" + given.op + "'",
                  "foretrain program prints the names of a plan's ops");
    operators_[static_cast<std::size_t>(segment)][given.backward ? 1 : 0] = {true, given.bandwidth.value,
                                                                             given.launch.value};
  }
  return {};
}

Cost CostModel::compute(const Op& op) const {
  const Operator& own = operators_[static_cast<std::size_t>(op.segment)][works_on_gradients(op.pass) ? 1 : 0];
  if (own.known && std::all_of(op.kernels.begin(), op.kernels.end(),
                               [](const Kernel& kernel) { return kernel.kind == KernelKind::memory; })) {
    Cost cost{0, calibration_.memory.evidence};
    for (const Kernel& kernel : op.kernels) cost.seconds += own.launch + kernel.bytes / own.bandwidth;
    return cost;
  }
  Cost sum;
  for (const Kernel& each : op.kernels) {
    const Cost cost = kernel(each);
    sum.seconds += cost.seconds;
    sum.evidence = std::max(sum.evidence, cost.evidence);
  }
  return sum;
}

Cost CostModel::host_copy(Bytes bytes) const {
  FORETRAIN_CHECK(host_bandwidth_ > 0, "a plan that copies to the host asks for CostNeeds::host_link");
  return {calibration_.memory.launch.value + static_cast<double>(bytes.value) / host_bandwidth_,
          calibration_.memory.evidence};
}

} // namespace foretrain
