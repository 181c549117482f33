#include "simulator/world.h"

#include <set>
#include <utility>

namespace foretrain {
namespace {

template <class Representative>
World make_world(const Program& program, const std::array<bool, kGroups>& groups, Representative&& representative) {
  World world;
  const Mesh& mesh = program.mesh;
  world.simulated.assign(static_cast<std::size_t>(mesh.world()), -1);
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (representative(rank) != rank) continue;
    world.simulated[static_cast<std::size_t>(rank)] = world.size();
    world.rank.push_back(rank);
    world.stage.push_back(mesh.coordinate(rank, Axis::pp));
  }
  for (int rank = 0; rank < mesh.world(); ++rank)
    world.simulated[static_cast<std::size_t>(rank)] = world.simulated[static_cast<std::size_t>(representative(rank))];

  std::array<int, kGroups> none{};
  none.fill(-1);
  world.instance_of.assign(world.rank.size(), none);
  for (int g = 0; g < kGroups; ++g) {
    if (!groups[static_cast<std::size_t>(g)]) continue;
    for (int s = 0; s < world.size(); ++s) {
      if (world.instance_of[static_cast<std::size_t>(s)][static_cast<std::size_t>(g)] >= 0) continue;
      std::set<int> members;
      std::set<int> stages;
      for (const int member : mesh.members(static_cast<Group>(g), world.rank[static_cast<std::size_t>(s)])) {
        members.insert(world.simulated[static_cast<std::size_t>(member)]);
        stages.insert(mesh.coordinate(member, Axis::pp));
      }
      World::Instance instance;
      instance.group = static_cast<Group>(g);
      instance.members.assign(members.begin(), members.end());
      instance.spans_stages = stages.size() > 1;
      const int number = static_cast<int>(world.instances.size());
      for (const int member : instance.members)
        world.instance_of[static_cast<std::size_t>(member)][static_cast<std::size_t>(g)] = number;
      world.instances.push_back(std::move(instance));
    }
  }
  world.copies = world.rank.empty() ? 1 : mesh.world() / world.size();
  return world;
}

} // namespace

World one_rank_per_stage(const Program& program, const std::array<bool, kGroups>& groups) {
  const Mesh& mesh = program.mesh;
  return make_world(program, groups, [&](int rank) { return mesh.on_stage(0, mesh.coordinate(rank, Axis::pp)); });
}

World all_ranks(const Program& program, const std::array<bool, kGroups>& groups, bool fold_tp) {
  const Mesh& mesh = program.mesh;
  return make_world(program, groups, [&](int rank) {
    return fold_tp ? rank - mesh.coordinate(rank, Axis::tp) * mesh.stride(Axis::tp) : rank;
  });
}

bool tp_ranks_are_copies(const Mesh& mesh) {
  const int tp = mesh.degree(Axis::tp);
  if (tp == 1 || mesh.fanouts().empty()) return tp > 1;
  const int node = mesh.fanouts().front();
  return mesh.stride(Axis::tp) * tp <= node && node % (mesh.stride(Axis::tp) * tp) == 0;
}

} // namespace foretrain
