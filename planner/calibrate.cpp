#include "planner/calibrate.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/program/places.h"
#include "planner/fit_compute.h"
#include "planner/least_squares.h"
#include "simulator/cost.h"

namespace foretrain {
namespace {

std::optional<TableKind> table_kind(const std::string& kind) {
  if (kind == "all-reduce") return TableKind::all_reduce;
  if (kind == "all-gather") return TableKind::all_gather;
  if (kind == "reduce-scatter") return TableKind::reduce_scatter;
  if (kind == "all-to-all") return TableKind::all_to_all;
  return std::nullopt;
}

void set_collectives(const Probes& probes, const ClusterSpec& cluster, Calibration& calibration) {
  std::map<std::pair<int, int>, std::map<double, double>> tables; // kind, ranks: bytes to seconds
  for (const ProbedCollective& probe : probes.collectives)
    if (const auto kind = table_kind(probe.kind))
      tables[{static_cast<int>(*kind), probe.ranks}][probe.bytes] = probe.seconds;
  for (const auto& [key, sizes] : tables) {
    CollectiveTable table;
    table.kind = static_cast<TableKind>(key.first);
    table.per_node = key.second;
    double longest = 0;
    for (const auto& [bytes, seconds] : sizes) {
      longest = std::max(longest, seconds * 1e6); // a size that was disturbed less than a smaller one
      table.log2_bytes.push_back(std::log2(bytes));
      table.microseconds.push_back(longest);
    }
    table.latency = cluster.tiers.front().link.latency;
    table.evidence = Evidence::measured;
    table.source = probes.source;
    if (table.log2_bytes.size() > 1) calibration.collectives.push_back(std::move(table));
  }
  calibration.inner_link = cluster.tiers.front().link.bandwidth;
}

/// One send: an all-gather of two ranks is two of them at once, each of half its bytes.
void set_link(const Probes& probes, const ClusterSpec& cluster, FabricModel& fabric) {
  std::vector<Sample<2>> samples;
  for (const ProbedCollective& probe : probes.collectives)
    if (probe.kind == "all-gather" && probe.ranks == 2) samples.push_back({{1, probe.bytes / 2}, probe.seconds});
  const LinkSpec& link = cluster.tiers.front().link;
  if (samples.size() < 2) return;
  const auto [start, per_byte] = fit(samples);
  const double reached = per_byte > 0 ? std::clamp(1 / per_byte / link.bandwidth.value, 0.001, 1.0) : 1.0;
  fabric.efficiency = reached;
  fabric.all_to_all = reached;
  fabric.point_to_point = reached;
  fabric.steps = std::clamp(start / std::max(link.latency.value, 1e-9), 0.0, 1000.0);
  fabric.steps_small = fabric.steps;
}

/// From what steps take beyond their compute and their collectives by themselves, relative to the whole step: one that
/// takes less than these says as much as one that takes more.
Result<InStepModel> in_step_of(const Probes& probes, const ClusterSpec& cluster, const Calibration& calibration) {
  FORETRAIN_TRY(const CostModel cost, CostModel::make(cluster, calibration, {Precision::fp32, false}));
  std::vector<Sample<2>> samples; // collectives, their time by themselves
  for (const ProbedStep& step : probes.steps) {
    GroupShape group;
    group.size = step.ranks;
    group.per_tier[0] = step.ranks;
    Sample<2> sample{{static_cast<double>(step.transfers.size()), 0}, 0};
    for (const ProbedStep::Transfer& transfer : step.transfers)
      sample.features[1] += cost.by_itself(transfer.collective, group, transfer.dtype, transfer.bytes).seconds;
    sample.whole = step.seconds;
    sample.seconds = step.seconds - sample.features[1];
    for (const Op& op : step.compute) sample.seconds -= cost.compute(op).seconds;
    if (sample.whole > 0) samples.push_back(sample);
  }
  if (samples.empty()) return InStepModel{};
  const auto [wait, stretch] = fit(samples);
  return InStepModel{Seconds(std::min(wait, 10.0)), std::min(stretch, 100.0)};
}

} // namespace

void add_ops(const Program& program, const Role& role, const MeasuredRank& measured, double times,
             std::vector<ProbedOp>& ops) {
  std::size_t number = 0;
  for_each_place(program, role, [&](const OpPlace&, const Op* op) {
    const std::size_t at = number++;
    if (op && op->kind == OpKind::compute && !op->kernels.empty() && at < measured.ops.size())
      ops.push_back({op->kernels, measured.ops[at].typical() * times, op->segment, op->pass});
  });
}

ProbedStep step_of(const Program& program, const Role& role, int ranks, double seconds) {
  ProbedStep step;
  step.ranks = ranks;
  step.seconds = seconds;
  for_each_place(program, role, [&](const OpPlace&, const Op* op) {
    if (!op) return;
    if (op->kind == OpKind::collective)
      step.transfers.push_back({op->collective, op->dtype, op->bytes});
    else if (op->kind == OpKind::compute)
      step.compute.push_back(*op);
  });
  return step;
}

Result<Calibration> calibrate(const Probes& probes, const ClusterSpec& cluster) {
  const DeviceSpec& device = cluster.device;
  if (!device.memory_bandwidth || cluster.tiers.empty())
    return fail("device '" + device.name + "'", "its memory bandwidth is unknown", "state it in the cluster's file");
  Calibration result;
  result.name = device.name;
  FORETRAIN_TRY(const MemoryFit memory, fit_memory(probes.ops));
  result.memory.launch = Seconds(memory.launch);
  result.memory.efficiency = share(memory.per_byte * device.memory_bandwidth->value, 1);
  result.memory.host = 1;
  result.operators = fit_operators(probes.ops);
  if (auto set = set_products(probes, device, memory, result.gemm); !set) return tl::unexpected<Error>(set.error());
  if (auto set = set_attention(probes, device, memory, result.attention); !set)
    return tl::unexpected<Error>(set.error());
  for (FabricModel* fabric : {&result.inner, &result.network}) {
    *fabric = {1, 0, 0, 1, 1, 1, 1, 1, Seconds(0), Evidence::fitted, probes.source};
    set_link(probes, cluster, *fabric);
  }
  set_collectives(probes, cluster, result);
  FORETRAIN_TRY(result.in_step, in_step_of(probes, cluster, result));
  // On processors a rank runs its collectives itself, in the order of its ops: its compute stands still meanwhile. What
  // moves its transfers between stages takes turns with it.
  const double lost = device.architecture == "cpu" ? 0.99 : 0.5;
  result.interference.inside = lost;
  result.interference.network = lost;
  result.interference.point_to_point = 0.5;
  result.interference.transfer_rate = 1;
  result.interference.evidence = Evidence::fitted;
  result.gemm.evidence = result.attention.evidence = result.memory.evidence = Evidence::fitted;
  // As dense products: each expert's weights are packed for its tokens.
  result.grouped.forward = result.grouped.input_gradient = result.grouped.weight_gradient = result.gemm.half_tokens;
  result.grouped.evidence = Evidence::datasheet;
  for (std::string* source :
       {&result.gemm.source, &result.attention.source, &result.memory.source, &result.interference.source})
    *source = probes.source;
  result.grouped.source = "not probed: as dense products";
  result.notes = fmt::format("foretrain calibrate: {} ops and {} sizes of collectives with {} ranks busy at once",
                             probes.ops.size(), probes.collectives.size(), probes.ranks);
  return result;
}

Result<Calibration> recalibrate(const Calibration& before, const Probes& probes, const ClusterSpec& cluster) {
  const DeviceSpec& device = cluster.device;
  if (!device.memory_bandwidth)
    return fail("device '" + device.name + "'", "its memory bandwidth is unknown", "state it in the cluster's file");
  Calibration result = before;
  result.name = device.name;
  FORETRAIN_TRY(const MemoryFit memory, fit_memory(probes.ops));
  result.memory.launch = Seconds(memory.launch);
  result.memory.efficiency = share(memory.per_byte * device.memory_bandwidth->value, 1);
  result.memory.evidence = Evidence::fitted;
  result.memory.source = probes.source;
  result.operators = fit_operators(probes.ops);
  if (auto set = set_products(probes, device, memory, result.gemm); !set) return tl::unexpected<Error>(set.error());
  result.gemm.evidence = Evidence::fitted;
  result.gemm.source = probes.source;
  AttentionModel attention = result.attention;
  attention.heads.clear();
  if (set_attention(probes, device, memory, attention)) { // plans without attention ops leave it as it was
    attention.half_blocks = 0;
    attention.overhead = Seconds(0);
    attention.evidence = Evidence::fitted;
    attention.source = probes.source;
    result.attention = std::move(attention);
  }
  result.notes = fmt::format("foretrain calibrate --runs: {} ops; collectives and links as before. {}",
                             probes.ops.size(), before.notes);
  return result;
}

} // namespace foretrain
