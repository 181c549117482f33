#pragma once

#include "core/program/program.h"

namespace foretrain {

/// Whether an op between a chunk's blocks runs in this slot.
inline bool op_runs(const Program& program, const ChunkOp& op, const Instruction& slot) {
  if (op.pass != slot.pass) return false;
  switch (op.when) {
  case When::every:
    return true;
  case When::first_micro_batch:
    return slot.micro_batch == 0;
  case When::last_micro_batch:
    return slot.micro_batch == program.micro_batches - 1;
  }
  return false;
}

template <class Visit>
void for_each_op(const Program& program, const Role& role, const Instruction& slot, Visit&& visit) {
  const Chunk& chunk = role.chunks[static_cast<std::size_t>(slot.chunk)];
  const auto visit_between = [&](int position, bool before) {
    for (const ChunkOp& op : chunk.between)
      if (op.position == position && op.before == before && op_runs(program, op, slot))
        visit(op.op, position, kBetweenBlocks);
  };
  const int count = static_cast<int>(chunk.blocks.size());
  for (int step = 0; step < count; ++step) {
    const int position = slot.pass == Pass::forward ? step : count - 1 - step;
    const auto at = static_cast<std::size_t>(position);
    visit_between(position, true);
    for (const Op& op : program.blocks[static_cast<std::size_t>(chunk.blocks[at])].ops(slot.pass))
      visit(op, position, chunk.layers[at]);
    visit_between(position, false);
  }
}

} // namespace foretrain
