#pragma once

#include <array>
#include <vector>

#include "core/program/program.h"

namespace foretrain {

/// Which ranks of a Program are simulated, and how the others are represented by them.
struct World {
  /// Simulated members of one process group. Members that a simulated rank represents are left out.
  struct Instance {
    Group group = Group::tp;
    std::vector<int> members; ///< simulated ranks, ascending
    bool spans_stages = false;
  };
  std::vector<int> rank;      ///< of each simulated rank: its rank in the mesh
  std::vector<int> stage;     ///< of each simulated rank
  std::vector<int> simulated; ///< of each rank of the mesh: the simulated rank that stands for it
  std::vector<Instance> instances;
  std::vector<std::array<int, kGroups>>
      instance_of; ///< of each simulated rank and group; -1 where the group is not used
  int copies = 1;  ///< ranks that each simulated one stands for

  [[nodiscard]] int size() const { return static_cast<int>(rank.size()); }
};

/// One rank per pipeline stage: on private ports its neighbours in every group behave as it does.
[[nodiscard]] World one_rank_per_stage(const Program& program, const std::array<bool, kGroups>& groups);

/// All ranks; with `fold_tp` only those with tensor-parallel coordinate 0.
[[nodiscard]] World all_ranks(const Program& program, const std::array<bool, kGroups>& groups, bool fold_tp);

/// Whether the tensor-parallel ranks of a group are copies of each other: the same place in equal parts of the network.
/// True when a group lies within one node and starts at a multiple of its size.
[[nodiscard]] bool tp_ranks_are_copies(const Mesh& mesh);

} // namespace foretrain
