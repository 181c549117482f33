#include "executor/communicators/groups.h"

#include <array>

namespace foretrain {

std::vector<Group> groups_of(const Program& program, const Role& role) {
  std::array<bool, kGroups> used{};
  const auto look = [&used](const std::vector<Op>& ops) {
    for (const Op& op : ops)
      if (op.kind == OpKind::collective) used[static_cast<std::size_t>(op.group)] = true;
  };
  for (const Chunk& chunk : role.chunks) {
    for (const int index : chunk.blocks) {
      const Block& block = program.blocks[static_cast<std::size_t>(index)];
      for (const std::vector<Op>* ops : {&block.forward, &block.backward, &block.input, &block.weight}) look(*ops);
    }
    for (const ChunkOp& op : chunk.between) look({op.op});
  }
  look(role.step);
  used[static_cast<std::size_t>(Group::pp)] = program.stages > 1;
  std::vector<Group> groups;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i] && program.mesh.size(static_cast<Group>(i)) > 1) groups.push_back(static_cast<Group>(i));
  return groups;
}

} // namespace foretrain
