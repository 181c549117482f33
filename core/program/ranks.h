#pragma once

#include <array>
#include <vector>

#include "core/spec/cluster.h"
#include "core/spec/layout.h"

namespace foretrain {

/// Process groups. Dense parameters are replicated over `data` (cp * dp), expert parameters over `expert_data`
/// (world / (pp * ep * etp)).
enum class Group {
  tp,
  cp,
  cp_inner, ///< Ulysses part of ulysses-ring
  cp_outer, ///< ring part of ulysses-ring
  pp,
  ep,
  etp,
  ep_etp,    ///< all ranks that hold one copy of a layer's experts
  data,      ///< dp * cp
  shard,     ///< dp_shard * cp: parameters and optimizer state are sharded here
  replicate, ///< dp_replicate
  expert_data,
  expert_shard, ///< expert_data without dp_replicate
  embedding,    ///< first and last stage
  world,
};
inline constexpr int kGroups = 15;

/// Where the members of a group lie: members inside one group of tier 0 (a node), groups of tier 0 inside one group of
/// tier 1, … Their product is the size.
struct GroupShape {
  int size = 1;
  std::array<int, 6> per_tier = {1, 1, 1, 1, 1, 1};
  [[nodiscard]] int per_node() const { return per_tier[0]; }
  [[nodiscard]] int nodes() const { return size / (per_tier[0] > 0 ? per_tier[0] : 1); }
  /// Outermost tier that the group crosses; 0 = inside a node.
  [[nodiscard]] int tier() const {
    int highest = 0;
    for (int i = 1; i < 6; ++i)
      if (per_tier[static_cast<std::size_t>(i)] > 1) highest = i;
    return highest;
  }
  bool operator==(const GroupShape&) const = default;
};

/// The grid of ranks. Rank = sum of coordinate * stride; strides follow the placement, innermost first.
class Mesh {
public:
  Mesh() = default;
  /// `fanouts`: devices per tier group, innermost first (ClusterSpec::tiers).
  Mesh(const Layout& layout, std::vector<int> fanouts);

  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] int degree(Axis axis) const { return degree_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int stride(Axis axis) const { return stride_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int coordinate(int rank, Axis axis) const { return rank / stride(axis) % degree(axis); }
  [[nodiscard]] int ep() const { return ep_; }
  [[nodiscard]] int etp() const { return etp_; }
  /// Members of the group that `rank` is in, in ring order; contains `rank`.
  [[nodiscard]] std::vector<int> members(Group group, int rank) const;
  [[nodiscard]] const GroupShape& shape(Group group) const { return shapes_[static_cast<std::size_t>(group)]; }
  [[nodiscard]] int size(Group group) const { return shape(group).size; }
  /// Rank with the same coordinates on another pipeline stage.
  [[nodiscard]] int on_stage(int rank, int stage) const;
  /// Innermost tier whose group holds both ranks.
  [[nodiscard]] int tier_between(int a, int b) const;
  [[nodiscard]] const std::vector<int>& fanouts() const { return fanouts_; }
  bool operator==(const Mesh&) const = default;

private:
  /// A run of ranks: `extent` members, `stride` apart. A group is the product of up to four runs, innermost first.
  struct Run {
    int extent = 1;
    int stride = 1;
    bool operator==(const Run&) const = default;
  };
  using Runs = std::array<Run, 4>;

  void define(Group group, const Runs& runs);
  [[nodiscard]] Runs within_stage(int start, int length, const std::array<Axis, 4>& placement) const;

  int world_ = 1;
  std::array<int, 4> degree_ = {1, 1, 1, 1};
  std::array<int, 4> stride_ = {1, 1, 1, 1};
  int ep_ = 1;
  int etp_ = 1;
  std::vector<int> fanouts_;
  std::array<Runs, kGroups> runs_{};
  std::array<GroupShape, kGroups> shapes_{};
};

} // namespace foretrain
