#include "planner/calibrate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/program/names.h"
#include "core/program/places.h"
#include "planner/least_squares.h"
#include "planner/stragglers.h"
#include "simulator/cost.h"

namespace foretrain {
namespace {

constexpr std::size_t kFewestOps = 4;

enum class Family { products, attention, memory, mixed };

Family family_of(const ProbedOp& op) {
  bool products = false;
  bool attention = false;
  bool memory = false;
  for (const Kernel& kernel : op.kernels) {
    products = products || kernel.kind == KernelKind::gemm;
    attention =
        attention || kernel.kind == KernelKind::attention_forward || kernel.kind == KernelKind::attention_backward;
    memory = memory || kernel.kind == KernelKind::memory;
    if (kernel.kind == KernelKind::grouped_gemm) return Family::mixed;
  }
  if (attention && !products) return Family::attention;
  if (products && !attention) return Family::products;
  return memory && !products && !attention ? Family::memory : Family::mixed;
}

double flop_of(const Kernel& kernel) {
  if (kernel.flop > 0) return kernel.flop;
  return 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) * static_cast<double>(kernel.k) *
         static_cast<double>(kernel.batch);
}

/// Seconds that the device's peak would take, by the dtype of the kernel.
Result<double> at_peak(const Kernel& kernel, const DeviceSpec& device) {
  const std::optional<FlopPerSecond>& peak = kernel.dtype == DType::fp64   ? device.fp64
                                             : kernel.dtype == DType::fp32 ? device.fp32
                                                                           : device.bf16;
  if (!peak || !(peak->value > 0))
    return fail("device '" + device.name + "'", "the peak of a precision that was probed is unknown",
                "state fp32, fp64 and bf16");
  return flop_of(kernel) / peak->value;
}

double share(double coefficient) { // seconds per second at peak, as the calibration's share of the peak
  constexpr double kLeast = 0.001;
  return coefficient > 0 ? std::clamp(1 / coefficient, kLeast, 1.0) : 1.0;
}

/// Time of memory-bound ops: so much per kernel, so much per byte.
struct MemoryFit {
  double launch = 0;
  double per_byte = 0;
};
Result<MemoryFit> fit_memory(const std::vector<ProbedOp>& ops) {
  std::vector<Sample<2>> samples;
  for (const ProbedOp& op : ops) {
    if (family_of(op) != Family::memory || !(op.seconds > 0)) continue;
    Sample<2> sample{{static_cast<double>(op.kernels.size()), 0}, op.seconds};
    for (const Kernel& kernel : op.kernels) sample.features[1] += kernel.bytes;
    if (sample.features[1] > 0) samples.push_back(sample);
  }
  if (samples.size() < kFewestOps) return fail("", "too few memory-bound ops were probed");
  const auto [launch, per_byte] = fit(samples);
  return MemoryFit{launch, per_byte};
}

/// So much per kernel and so much per byte where the samples tell the two apart: sizes differ enough, and most lie
/// close to the line. Else the mean rate: an op that does its work only now and then (clipping) is right in the sum.
MemoryFit fit_operator(const std::vector<Sample<2>>& samples) {
  constexpr double kApart = 3;   // largest size over smallest
  constexpr double kClose = 0.3; // root of the mean squared relative error
  double bytes = 0;
  double seconds = 0;
  double least = samples.front().features[1];
  double most = least;
  for (const Sample<2>& sample : samples) {
    bytes += sample.features[1];
    seconds += sample.seconds;
    least = std::min(least, sample.features[1]);
    most = std::max(most, sample.features[1]);
  }
  const auto [launch, per_byte] = fit(samples);
  double squares = 0;
  for (const Sample<2>& sample : samples) {
    const double found = launch * sample.features[0] + per_byte * sample.features[1];
    squares += std::pow(found / sample.seconds - 1, 2);
  }
  const bool close = squares <= kClose * kClose * static_cast<double>(samples.size());
  return most >= kApart * least && close ? MemoryFit{launch, per_byte} : MemoryFit{0, seconds / bytes};
}

/// Memory-bound operators that were seen often enough, each with its own figures.
std::vector<OperatorModel> fit_operators(const std::vector<ProbedOp>& ops) {
  std::map<std::pair<Segment, bool>, std::vector<Sample<2>>> by_kind;
  for (const ProbedOp& op : ops) {
    if (op.segment == Segment::none || family_of(op) != Family::memory || !(op.seconds > 0)) continue;
    Sample<2> sample{{static_cast<double>(op.kernels.size()), 0}, op.seconds};
    for (const Kernel& kernel : op.kernels) sample.features[1] += kernel.bytes;
    if (sample.features[1] > 0) by_kind[{op.segment, works_on_gradients(op.pass)}].push_back(sample);
  }
  constexpr double kMost = 1e15; // where the time does not grow with the bytes
  std::vector<OperatorModel> found;
  for (const auto& [kind, samples] : by_kind) {
    if (samples.size() < kFewestOps) continue;
    const auto [launch, per_byte] = fit_operator(samples);
    found.push_back({std::string(id_of(kind.first)), kind.second,
                     BytesPerSecond(per_byte > 1 / kMost ? 1 / per_byte : kMost), Seconds(launch)});
  }
  return found;
}

/// Whether some op holds one of two features without the other, so that the two can be told apart.
template <std::size_t N> bool apart(const std::vector<Sample<N>>& samples, std::size_t a, std::size_t b) {
  return std::any_of(samples.begin(), samples.end(),
                     [&](const Sample<N>& sample) { return (sample.features[a] > 0) != (sample.features[b] > 0); });
}

Result<void> set_products(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory, GemmModel& gemm) {
  constexpr std::size_t kInput = 2;
  constexpr std::size_t kWeight = 3;
  std::vector<Sample<4>> samples; // kernels, forward, gradient of inputs, gradient of weights
  for (const ProbedOp& op : probes.ops) {
    if (family_of(op) != Family::products || !(op.seconds > 0)) continue;
    Sample<4> sample;
    sample.seconds = op.seconds;
    for (const Kernel& kernel : op.kernels) {
      if (kernel.kind == KernelKind::memory) {
        sample.seconds -= memory.launch + memory.per_byte * kernel.bytes;
        continue;
      }
      FORETRAIN_TRY(const double ideal, at_peak(kernel, device));
      sample.features[0] += 1;
      sample.features[kernel.role == GemmRole::forward          ? 1
                      : kernel.role == GemmRole::input_gradient ? kInput
                                                                : kWeight] += ideal;
    }
    if (sample.seconds > op.seconds / 2) samples.push_back(sample);
  }
  if (samples.size() < kFewestOps) return fail("", "too few matrix products were probed");
  const bool both = apart(samples, kInput, kWeight);
  if (!both) // every op computes both gradients
    for (Sample<4>& sample : samples) sample.features[kInput] += std::exchange(sample.features[kWeight], 0);
  const auto [per_kernel, forward, input, weight] = fit(samples);
  const auto relative = [forward](double to) { return to > 0 ? std::clamp(forward / to, 0.1, 2.0) : 1; };
  gemm.efficiency = share(forward);
  gemm.input_gradient = relative(input);
  gemm.weight_gradient = relative(both ? weight : input);
  gemm.overhead = Seconds(std::max(0.0, per_kernel - memory.launch));
  gemm.tail = 0;
  gemm.half_k = 0;
  gemm.multiprocessors = 1;
  return {};
}

/// Attention works on blocks of queries and meets keys that a mask then hides: its work per counted FLOP falls with the
/// length, as 1 + half_sequence / length.
Result<void> set_attention(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory,
                           AttentionModel& attention) {
  std::map<std::pair<int, bool>, std::vector<Sample<2>>> by_kind; // head width, forward: at peak, at peak / length
  for (const ProbedOp& op : probes.ops) {
    if (family_of(op) != Family::attention) continue;
    Sample<2> sample;
    sample.seconds = op.seconds;
    std::pair<int, bool> kind;
    for (const Kernel& kernel : op.kernels) {
      sample.seconds -= memory.launch;
      if (kernel.kind == KernelKind::memory) {
        sample.seconds -= memory.per_byte * kernel.bytes;
        continue;
      }
      FORETRAIN_TRY(const double seconds, at_peak(kernel, device));
      sample.features[0] += seconds;
      sample.features[1] += seconds / attention_length(kernel);
      kind = {static_cast<int>(kernel.k), kernel.kind == KernelKind::attention_forward};
    }
    if (sample.seconds > 0 && sample.features[0] > 0 && kind.first > 0) by_kind[kind].push_back(sample);
  }
  // One half_sequence for all: the mean of what each kind says.
  constexpr double kLongest = 1e6;
  double sum = 0;
  for (const auto& [kind, samples] : by_kind) {
    const auto [whole, by_length] = fit(samples);
    sum += whole > 0 ? std::min(by_length / whole, kLongest) : 0;
  }
  if (by_kind.empty()) return fail("", "no attention was probed");
  attention.half_sequence = sum / static_cast<double>(by_kind.size());
  const auto rate = [&](int width, bool forward) {
    std::vector<Sample<1>> samples;
    for (const Sample<2>& sample : by_kind[{width, forward}])
      samples.push_back({{sample.features[0] + attention.half_sequence * sample.features[1]}, sample.seconds});
    return samples.empty() ? 1.0 : share(fit(samples).front());
  };
  std::set<int> widths;
  for (const auto& [kind, samples] : by_kind) widths.insert(kind.first);
  for (const int width : widths)
    if (by_kind.count({width, true}) > 0) attention.heads.push_back({width, rate(width, true), rate(width, false)});
  if (attention.heads.empty()) return fail("", "no attention was probed");
  return {};
}

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

/// From how much longer collectives take between compute than by themselves.
Result<double> spread_of(const Probes& probes, const ClusterSpec& cluster, const Calibration& calibration) {
  FORETRAIN_TRY(const CostModel cost, CostModel::make(cluster, calibration, {Precision::fp32, false}));
  double waited = 0;
  double compute = 0;
  for (const ProbedStep& step : probes.steps) {
    GroupShape group;
    group.size = step.ranks;
    group.per_tier[0] = step.ranks;
    double beyond = 0;
    for (const ProbedStep::Transfer& transfer : step.transfers)
      beyond += transfer.seconds - cost.collective(transfer.collective, group, transfer.dtype, transfer.bytes).seconds;
    waited += beyond;
    compute += step.compute * expected_maximum(step.ranks);
  }
  return compute > 0 ? std::clamp(waited / compute, 0.0, 1.0) : 0.0;
}

} // namespace

void add_ops(const Program& program, const Role& role, const MeasuredRank& measured, std::vector<ProbedOp>& ops) {
  std::size_t number = 0;
  for_each_place(program, role, [&](const OpPlace&, const Op* op) {
    const std::size_t at = number++;
    if (op && op->kind == OpKind::compute && !op->kernels.empty() && at < measured.ops.size())
      ops.push_back({op->kernels, measured.ops[at].typical(), op->segment, op->pass});
  });
}

ProbedStep step_of(const Program& program, const Role& role, const MeasuredRank& measured, int ranks) {
  ProbedStep step;
  step.ranks = ranks;
  std::size_t number = 0;
  for_each_place(program, role, [&](const OpPlace&, const Op* op) {
    const std::size_t at = number++;
    if (!op || at >= measured.ops.size()) return;
    const double seconds = measured.ops[at].typical();
    if (op->kind == OpKind::collective)
      step.transfers.push_back({op->collective, op->dtype, op->bytes, seconds});
    else
      step.compute += seconds;
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
  result.memory.efficiency = share(memory.per_byte * device.memory_bandwidth->value);
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
  FORETRAIN_TRY(result.spread, spread_of(probes, cluster, result));
  // The ranks' processors move the bytes: while a transfer runs, as much compute is lost as the transfer takes.
  result.interference.inside = 0.5;
  result.interference.network = 0.5;
  result.interference.point_to_point = 0.5;
  result.interference.transfer_rate = 1;
  result.interference.evidence = Evidence::fitted;
  result.gemm.evidence = result.attention.evidence = result.memory.evidence = Evidence::fitted;
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
  result.memory.efficiency = share(memory.per_byte * device.memory_bandwidth->value);
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
