#pragma once

#include <cstddef>
#include <vector>

#include "core/program/program.h"
#include "core/program/schedules/schedule.h"

namespace foretrain {

/// The instructions of one stage: the schedule's slots with the transfers between stages.
///
/// Blocking (Megatron's schedules without interleaving): what a slot sends and what the next slot needs are issued as
/// one batch after the slot, and compute waits for both; interleaved, warm stages run a forward and a backward between
/// two batches. Overlapped: the next slot's receive is posted before the slot runs (in groups larger than the stages,
/// where it is the next to arrive: see `posts_of`), the slot waits for its own input only, and a send is waited for one
/// slot later.
[[nodiscard]] std::vector<Instruction> instructions_of(const std::vector<ScheduleSlot>& order,
                                                       const ScheduleShape& shape, int stage, bool blocking);

/// A receive beside compute, by places in the stage's order.
struct ReceivePost {
  std::size_t before = 0; ///< the slot that it is posted before
  std::size_t slot = 0;   ///< whose input it is
};
/// The receives of a stage whose transfers overlap, in the order in which they are posted: before the slot before the
/// one that takes the input. What goes round from the last stage to the first (or back) in a group of N > p
/// micro-batches is sent N - p slots of its pass before it is taken: its receive is posted as much earlier, as in
/// Megatron-LM's schedules.py, so that the sender need not wait; the input lies there meanwhile.
[[nodiscard]] std::vector<ReceivePost> posts_of(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape,
                                                int stage);

/// Whether the slot's input comes from another stage, and whether its output goes to one.
[[nodiscard]] bool needs_receive(const ScheduleSlot& slot, const ScheduleShape& shape, int stage);
[[nodiscard]] bool needs_send(const ScheduleSlot& slot, const ScheduleShape& shape, int stage);

/// Slots that share one batch of blocking transfers: [first, end) of the stage's order.
struct SlotUnit {
  std::size_t first = 0;
  std::size_t end = 0;
};
/// Megatron's interleaved schedule, when it does not overlap, runs a forward and a backward between two batches once it
/// is warm (schedules.py, forward_backward_pipelining_with_interleaving; the warm-up is 2 (p - i - 1) + (v - 1) N
/// slots). Everything else communicates after every slot.
[[nodiscard]] std::vector<SlotUnit> units_of(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape,
                                             int stage);

} // namespace foretrain
