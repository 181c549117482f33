#pragma once

#include "core/spec/layout.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// Target for the relative difference between slot and op replay of one plan (docs/simulators.md, "Slots and ops": who
/// meets it, and how far off the others are).
inline constexpr double kSlotOpBound = 0.01;

/// Families of layouts by how near their slots come to their ops.
enum class SlotFamily {
  plain,       ///< one chunk per stage, no data-parallel collective beside every slot of a pipeline
  every_slot,  ///< one chunk per stage, with such collectives
  interleaved, ///< several chunks per stage: transfers, reductions and gathers of one chunk beside slots of another
  interleaved_every_slot, ///< both
};
[[nodiscard]] SlotFamily slot_family(const Layout& layout, const Semantics& semantics);

/// The difference between slots and ops that a plan of the family may show: measured over more than a thousand plans,
/// with some room.
[[nodiscard]] double slot_op_bound(SlotFamily family);

} // namespace foretrain
