#pragma once

#include <functional>
#include <vector>

#include "core/program/program.h"
#include "core/spec/prediction.h"

namespace foretrain {

/// A point of a stage's memory timeline: what the allocator holds once an instruction was issued.
struct MemoryPoint {
  int instruction = 0; ///< index into Role::instructions
  Bytes held;          ///< after the instruction
  Bytes peak;          ///< highest inside it
  bool operator==(const MemoryPoint&) const = default;
};

/// Memory of a stage over its instructions at slot granularity: each slot is the fold of its blocks.
[[nodiscard]] std::vector<MemoryPoint> memory_timeline(const Program& program, const Role& role);

/// The same at op granularity: every op allocates and frees by itself. Peaks equal those of `memory_timeline`.
[[nodiscard]] std::vector<MemoryPoint> memory_timeline_by_op(const Program& program, const Role& role);

/// Peak of a stage with its parts, from `memory_timeline` and one walk over the peak slot.
[[nodiscard]] StageMemory stage_memory(const Program& program, const Role& role);

/// Fold of one slot: its blocks in order, with the memory of the collectives between them.
[[nodiscard]] Block::Memory slot_memory(const Program& program, const Role& role, const Instruction& slot);

} // namespace foretrain
