#pragma once

#include <cstdint>
#include <vector>

#include "simulator/slots.h"
#include "simulator/stage_profile.h"

namespace foretrain {

/// The slots of one step: profiles by kind of chunk, the kind of chunk stage * chunks + index, and the costs to fill.
struct StepSlots {
  const std::vector<ChunkProfile>& profiles;
  const std::vector<std::uint32_t>& kinds;
  SlotCosts& costs;
};

/// Durations of each slot on its own; `last` is the pass that ends a micro-batch.
void fill_slots(StepSlots& slots, Pass last);

/// What slots leave to those after them (SlotCosts::after).
void fill_after(StepSlots& slots);

/// Reductions that outlast a chunk's last backward go on beside those of the chunks that follow, slow them (added to the
/// costs), and hold up their reductions. The first chunk's backward is the stage's last slot: returns what is left then,
/// which delays the step's end.
[[nodiscard]] double queue_reductions(StepSlots& slots, std::size_t stage, const ScheduleShape& shape, Pass last);

/// Seconds that the slots of a stage compute in the whole step, whatever they wait for.
[[nodiscard]] double compute_of(const StepSlots& slots, std::size_t stage, const ScheduleShape& shape);

} // namespace foretrain
