#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/program/program.h"
#include "core/program/ranks.h"
#include "core/spec/calibration.h"
#include "core/spec/cluster.h"
#include "core/spec/prediction.h"

/// Durations of kernels and transfers when nothing disturbs them, and what they rest on. Formulas and their sources:
/// docs/formulas.md, "Kernel time" and "Collectives".
namespace foretrain {

/// Whether an op works on gradients: what `OperatorModel::backward` tells apart.
[[nodiscard]] bool works_on_gradients(Pass pass);
/// Of an attention kernel: twice the keys that a query meets in the mean, from the executed work (2 FLOP per
/// multiply-add, backward 2.5 times forward); the length of a sequence under a causal mask.
[[nodiscard]] double attention_length(const Kernel& kernel);

inline constexpr int kTiers = 6; ///< levels of the network that a GroupShape can tell apart

struct Cost {
  double seconds = 0;
  Evidence evidence = Evidence::measured;
};

/// What a job needs beyond the figures that every job needs: `CostModel::make` refuses when one is unknown.
struct CostNeeds {
  Precision precision = Precision::bf16;
  bool host_link = false; ///< optimizer or activations on the host
};

/// What a measured table is a table of.
[[nodiscard]] Collective collective_of(TableKind kind);

/// A collective as a network simulator needs it: after `latency`, every rank sends `bytes_per_rank[tier]` through its
/// port of that tier, all at once; undisturbed they take `seconds` more, so latency + seconds == collective().seconds.
struct Wire {
  double latency = 0;
  double seconds = 0;
  std::array<double, kTiers> bytes_per_rank{};
  Evidence evidence = Evidence::measured; ///< of the duration
  /// Rate in B/s that keeps a flow of this tier at its undisturbed duration; 0 when it sends nothing.
  [[nodiscard]] double rate_cap(int tier) const {
    const double bytes = bytes_per_rank[static_cast<std::size_t>(tier)];
    return seconds > 0 ? bytes / seconds : 0;
  }
};

/// Immutable after `make`; safe to read from several threads. No call allocates.
class CostModel {
public:
  /// Errors: a figure that the job needs is unknown (named), more than six tiers.
  [[nodiscard]] static Result<CostModel> make(const ClusterSpec& cluster, const Calibration& calibration,
                                              const CostNeeds& needs = {});

  /// One kernel, its launch gap included. Products carry the tokens in `m` for every role (grouped ones: tokens per
  /// expert); a weight gradient of m tokens is an n × k matrix, an input gradient m × n summed over k.
  [[nodiscard]] Cost kernel(const Kernel& kernel) const;
  /// Sum of the op's kernels; the host's own floor is the caller's. An op of memory-bound kernels alone that the
  /// calibration lists runs at its figures.
  [[nodiscard]] Cost compute(const Op& op) const;

  /// `bytes` as in `Op::bytes`: whole tensor (all-reduce, all-gather, reduce-scatter, broadcast), sent per rank with
  /// its own share (all-to-all), sent per round (ring exchange). `network_share`: part of an all-to-all's copies that
  /// cross nodes after de-duplication, relative to one copy per expert.
  /// In a step, between compute.
  [[nodiscard]] Cost collective(Collective kind, const GroupShape& shape, DType dtype, Bytes bytes, int rounds = 1,
                                double network_share = 1) const;
  /// The same by itself, over and over, as benchmarks time it.
  [[nodiscard]] Cost by_itself(Collective kind, const GroupShape& shape, DType dtype, Bytes bytes, int rounds = 1,
                               double network_share = 1) const;
  [[nodiscard]] Wire wire(Collective kind, const GroupShape& shape, DType dtype, Bytes bytes, int rounds = 1,
                          double network_share = 1) const;

  /// A pipeline transfer whose ends meet at this tier (0 = inside a node).
  [[nodiscard]] Cost transfer(int tier, Bytes bytes) const;
  /// The same for what passes between stages, of which the ranks of a tensor-parallel group send `parts` parts: those
  /// that receive gather it.
  [[nodiscard]] Wire boundary_wire(int tier, Bytes bytes, int parts, const GroupShape& group) const;
  [[nodiscard]] Wire transfer_wire(int tier, Bytes bytes) const;
  /// Of the cluster: figures are those of one rank's share.
  [[nodiscard]] int ranks_per_processor() const { return ranks_per_processor_; }

  /// A copy over the host link; needs `CostNeeds::host_link`.
  [[nodiscard]] Cost host_copy(Bytes bytes) const;

  /// Rate of compute (1 = undisturbed) on a rank while a collective of this shape, or a pipeline transfer, runs on it.
  [[nodiscard]] double interference(const GroupShape& shape) const;
  [[nodiscard]] double transfer_interference() const { return 1 - calibration_.interference.point_to_point; }
  /// Rate of a collective beside compute, relative to alone.
  [[nodiscard]] double transfer_rate() const { return calibration_.interference.transfer_rate; }

  /// Bandwidth in B/s of one rank's port towards this tier, background load and oversubscription taken off.
  [[nodiscard]] double tier_bandwidth(int tier) const { return tiers_[index(tier)].bandwidth; }
  [[nodiscard]] int tiers() const { return tier_count_; }
  /// The best share of a rank's port towards this tier that any transfer reaches, in B/s.
  [[nodiscard]] double port_rate(int tier) const;
  /// Bytes per second that streaming kernels reach.
  [[nodiscard]] double memory_bandwidth() const { return memory_bandwidth_; }
  [[nodiscard]] const Calibration& calibration() const { return calibration_; }

private:
  static constexpr int kSizes = 44; ///< grid of log2 bytes: 0 … 43 (8 TiB)
  static constexpr int kKinds = 4;
  static constexpr int kSegments = static_cast<int>(Segment::linear_mixer) + 1; // the last one

  struct Tier {
    double bandwidth = 0; ///< per rank, after oversubscription and background load
    double ring = 0;      ///< shares of it that rings, all-to-alls and single sends reach
    double all_to_all = 0;
    double point_to_point = 0;
    double step = 0; ///< seconds per ring step, bulk and low-latency protocol
    double step_small = 0;
    double small_share = 0;
    double base = 0;
    double reduction = 0;
    int reduction_from = 0;
    int fanout = 1;
    Fabric fabric = Fabric::switched;
    std::vector<int> torus;
    bool scale_up = true;
  };
  /// A measured table on the grid: log2 of seconds.
  struct Table {
    int per_node = 0;
    int nodes = 1;
    bool elsewhere = false; ///< measured over other links than these
    std::array<double, kSizes> log2_seconds{};
  };
  /// Bytes per rank on each tier and the latency of an all-to-all.
  struct Path {
    std::array<double, kTiers> bytes{};
    double latency = 0;
  };

  CostModel() = default;
  static std::size_t index(int tier) {
    return static_cast<std::size_t>(tier < 0 ? 0 : tier >= kTiers ? kTiers - 1 : tier);
  }
  void set_tiers(const ClusterSpec& cluster);
  void set_tables(const ClusterSpec& cluster);
  Result<void> set_operators();
  [[nodiscard]] CostModel over(const ClusterSpec& cluster) const;
  [[nodiscard]] double anchored(const CollectiveTable& table, int log2_bytes) const;

  [[nodiscard]] double gemm_seconds(const Kernel& kernel) const;
  [[nodiscard]] double attention_seconds(const Kernel& kernel) const;
  [[nodiscard]] double grouped_half(GemmRole role) const;
  [[nodiscard]] double gemm_efficiency(DType dtype) const;

  [[nodiscard]] double port(int tier, int members, double share) const;
  [[nodiscard]] std::array<double, kTiers> ring_bytes(const GroupShape& shape, double bytes, double factor) const;
  [[nodiscard]] double ring_or_tree(const GroupShape& shape, double bytes, double ring_factor, double rounds,
                                    double tree_factor) const;
  [[nodiscard]] Path all_to_all(const GroupShape& shape, double bytes, double network_share) const;
  [[nodiscard]] double exchange_all(const GroupShape& shape, const Path& path) const;
  [[nodiscard]] double formula(Collective kind, const GroupShape& shape, double bytes, double network_share) const;
  [[nodiscard]] double exchange(const GroupShape& shape, double bytes) const;
  [[nodiscard]] bool reduces_in_switch(Collective kind, int size) const;
  [[nodiscard]] Cost from_tables(Collective kind, const GroupShape& shape, double bytes) const;
  [[nodiscard]] static double at(const Table& table, double log2_bytes);

  Calibration calibration_;
  std::array<double, 8> peak_{}; ///< FLOP/s by DType; 0 = unknown
  double memory_bandwidth_ = 0;
  double host_bandwidth_ = 0;
  int ranks_per_processor_ = 1;
  std::array<Tier, kTiers> tiers_{};
  int tier_count_ = 0;
  std::array<std::vector<Table>, kKinds> tables_; ///< by (per_node, nodes)
  /// Of Calibration::operators, by segment, forward and backward; `known` where there is one.
  struct Operator {
    bool known = false;
    double bandwidth = 0;
    double launch = 0;
  };
  std::array<std::array<Operator, 2>, kSegments> operators_{};
};

} // namespace foretrain
