#include "planner/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/program/places.h"

namespace foretrain {
namespace {

constexpr std::size_t kFewestOps = 4;

/// Σ coefficient · feature ≈ seconds.
template <std::size_t N> struct Sample {
  std::array<double, N> features{};
  double seconds = 0;
};

/// Solves a x = b of size `n` by elimination with pivots; a column without a pivot gets 0.
template <std::size_t N> std::array<double, N> solve(std::array<std::array<double, N + 1>, N> a) {
  std::array<bool, N> used{};
  std::array<int, N> row_of{};
  row_of.fill(-1);
  for (std::size_t column = 0; column < N; ++column) {
    std::size_t best = N;
    for (std::size_t row = 0; row < N; ++row)
      if (!used[row] && (best == N || std::abs(a[row][column]) > std::abs(a[best][column]))) best = row;
    if (best == N || std::abs(a[best][column]) < 1e-12) continue;
    used[best] = true;
    row_of[column] = static_cast<int>(best);
    for (std::size_t row = 0; row < N; ++row) {
      if (row == best) continue;
      const double factor = a[row][column] / a[best][column];
      for (std::size_t k = column; k <= N; ++k) a[row][k] -= factor * a[best][k];
    }
  }
  std::array<double, N> x{};
  for (std::size_t column = 0; column < N; ++column)
    if (row_of[column] >= 0) {
      const auto row = static_cast<std::size_t>(row_of[column]);
      x[column] = a[row][N] / a[row][column];
    }
  return x;
}

/// Least squares of relative errors with coefficients that are not negative: the most negative is set to 0 until none
/// is left. Features are scaled to their largest, so that the pivots compare.
template <std::size_t N> std::array<double, N> fit(const std::vector<Sample<N>>& samples) {
  std::array<double, N> scale{};
  for (const Sample<N>& sample : samples)
    for (std::size_t i = 0; i < N; ++i) scale[i] = std::max(scale[i], sample.features[i] / sample.seconds);
  std::array<bool, N> off{};
  for (std::size_t i = 0; i < N; ++i) off[i] = !(scale[i] > 0);
  while (true) {
    std::array<std::array<double, N + 1>, N> normal{};
    for (const Sample<N>& sample : samples) {
      std::array<double, N> f{};
      for (std::size_t i = 0; i < N; ++i) f[i] = off[i] ? 0 : sample.features[i] / sample.seconds / scale[i];
      for (std::size_t i = 0; i < N; ++i) {
        for (std::size_t k = 0; k < N; ++k) normal[i][k] += f[i] * f[k];
        normal[i][N] += f[i];
      }
    }
    std::array<double, N> x = solve<N>(normal);
    const auto lowest = std::min_element(x.begin(), x.end());
    if (*lowest >= 0) {
      for (std::size_t i = 0; i < N; ++i) x[i] = off[i] ? 0 : x[i] / scale[i];
      return x;
    }
    off[static_cast<std::size_t>(lowest - x.begin())] = true;
  }
}

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

Result<void> set_products(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory, GemmModel& gemm) {
  std::vector<Sample<3>> samples; // kernels, forward, backward
  for (const ProbedOp& op : probes.ops) {
    if (family_of(op) != Family::products || !(op.seconds > 0)) continue;
    Sample<3> sample;
    sample.seconds = op.seconds;
    for (const Kernel& kernel : op.kernels) {
      if (kernel.kind == KernelKind::memory) {
        sample.seconds -= memory.launch + memory.per_byte * kernel.bytes;
        continue;
      }
      FORETRAIN_TRY(const double ideal, at_peak(kernel, device));
      sample.features[0] += 1;
      sample.features[kernel.role == GemmRole::forward ? 1 : 2] += ideal;
    }
    if (sample.seconds > op.seconds / 2) samples.push_back(sample);
  }
  if (samples.size() < kFewestOps) return fail("", "too few matrix products were probed");
  const auto [per_kernel, forward, backward] = fit(samples);
  gemm.efficiency = share(forward);
  const double relative = backward > 0 ? std::clamp(forward / backward, 0.1, 2.0) : 1;
  gemm.input_gradient = relative; // one op computes both: they cannot be told apart
  gemm.weight_gradient = relative;
  gemm.overhead = Seconds(std::max(0.0, per_kernel - memory.launch));
  gemm.tail = 0;
  gemm.half_k = 0;
  gemm.multiprocessors = 1;
  return {};
}

Result<void> set_attention(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory,
                           AttentionModel& attention) {
  struct Sums {
    double ideal = 0;
    double seconds = 0;
  };
  std::map<int, std::array<Sums, 2>> by_width;
  for (const ProbedOp& op : probes.ops) {
    if (family_of(op) != Family::attention) continue;
    double rest = op.seconds;
    double ideal = 0;
    int width = 0;
    bool forward = false;
    for (const Kernel& kernel : op.kernels) {
      if (kernel.kind == KernelKind::memory) {
        rest -= memory.launch + memory.per_byte * kernel.bytes;
        continue;
      }
      FORETRAIN_TRY(const double seconds, at_peak(kernel, device));
      ideal += seconds;
      width = static_cast<int>(kernel.k);
      forward = kernel.kind == KernelKind::attention_forward;
      rest -= memory.launch;
    }
    if (!(rest > 0)) continue;
    Sums& sums = by_width[width][forward ? 0 : 1];
    sums.ideal += ideal;
    sums.seconds += rest;
  }
  const auto rate = [](const Sums& sums) { return sums.ideal > 0 ? share(sums.seconds / sums.ideal) : 1.0; };
  for (const auto& [width, sums] : by_width)
    if (width > 0 && sums[0].ideal > 0) attention.heads.push_back({width, rate(sums[0]), rate(sums[1])});
  if (attention.heads.empty()) return fail("", "no attention was probed");
  return {};
}

std::optional<TableKind> table_kind(const std::string& kind) {
  if (kind == "all-reduce") return TableKind::all_reduce;
  if (kind == "all-gather") return TableKind::all_gather;
  if (kind == "reduce-scatter") return TableKind::reduce_scatter;
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

} // namespace

void add_ops(const Program& program, const Role& role, const MeasuredRank& measured, std::vector<ProbedOp>& ops) {
  std::size_t number = 0;
  for_each_place(program, role, [&](const OpPlace&, const Op* op) {
    const std::size_t at = number++;
    if (op && op->kind == OpKind::compute && !op->kernels.empty() && at < measured.ops.size())
      ops.push_back({op->kernels, measured.ops[at].median});
  });
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
  if (auto set = set_products(probes, device, memory, result.gemm); !set) return tl::unexpected<Error>(set.error());
  if (auto set = set_attention(probes, device, memory, result.attention); !set)
    return tl::unexpected<Error>(set.error());
  for (FabricModel* fabric : {&result.inner, &result.network}) {
    *fabric = {1, 0, 0, 1, 1, 1, 1, 1, Seconds(0), Evidence::fitted, probes.source};
    set_link(probes, cluster, *fabric);
  }
  set_collectives(probes, cluster, result);
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
  if (auto set = set_products(probes, device, memory, result.gemm); !set) return tl::unexpected<Error>(set.error());
  result.gemm.evidence = Evidence::fitted;
  result.gemm.source = probes.source;
  AttentionModel attention = result.attention;
  attention.heads.clear();
  if (set_attention(probes, device, memory, attention)) { // plans without attention ops leave it as it was
    attention.half_sequence = 0;
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
