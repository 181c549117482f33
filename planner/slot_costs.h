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

/// Reductions that outlast a chunk's last backward go on beside the slots of the chunk that follows, slow them (added
/// to the costs), and hold up its reductions. The first chunk's backward is the stage's last slot: `left` gets, per
/// stage, what is left then, which delays the step's end.
void queue_reductions(StepSlots& slots, const ScheduleShape& shape, Pass last, std::vector<double>& left);

/// Transfers beside slots: what a slot makes is sent, and what a later one needs arrives, while others run; a transfer
/// and the slot beside it take from each other what both need. `transfers`: what one over each boundary loads its ends
/// with.
void go_beside(StepSlots& slots, const ScheduleShape& shape, const std::vector<Load>& transfers, Pass gradient);

/// Seconds that a chunk's slots compute in the whole step, its host's waits among them: what straggles.
[[nodiscard]] double working(const ChunkProfile& chunk, int micro_batches);

} // namespace foretrain
