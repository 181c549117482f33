#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <vector>

#include "core/program/schedules/schedule.h"

namespace foretrain {

/// Where the cost of a step comes from. Steps of one kind cost the same.
enum class StepSource : std::uint8_t {
  forward,
  first_forward, ///< F of the chunk's first micro-batch
  backward,
  last_backward, ///< B of the chunk's last micro-batch
  input,
  weight,
  last_weight,   ///< W of the chunk's last micro-batch
  wait,          ///< blocking transfers: for one more of the batch
  transfer_next, ///< first of a batch of blocking transfers over the boundary to the next stage
  transfer_prev, ///< … to the previous stage
  transfer_both, ///< … a batch with both
};
inline constexpr int kSlotSources = 7; ///< those before `wait` are slots of the schedule

inline constexpr std::size_t kPasses = 4; ///< of slots: forward, backward, input, weight
[[nodiscard]] std::size_t slot_pass(Pass pass);

struct StepKind {
  StepSource source = StepSource::forward;
  Pass before =
      Pass::step; ///< slots of an order that remembers: the pass that ran before it on the stage; `step`: none
  std::uint32_t stage = 0;
  std::uint32_t chunk = 0;
  std::int32_t boundary = -1; ///< transfer that its input arrives by: from stage `boundary` to the next; -1 none
  bool follows = false;       ///< slots: right after the last pass of a chunk, whose gradients are reduced meanwhile
  bool crowded = false;       ///< that transfer goes through a port beside another one of its batch
  bool crowded_batch = false; ///< first step of a batch of transfers: one of them does
  std::uint32_t count = 0;    ///< steps of this kind
  bool operator==(const StepKind&) const = default;
};

/// Boundary tensors of a stage that are in flight at a slot, its own input aside.
struct InFlight {
  std::uint32_t beside = 0; ///< held while it runs: received ahead, or sent and not gone
  std::uint32_t after = 0;  ///< blocking: received after it, while what it sends is still held
  bool operator==(const InFlight&) const = default;
};

/// A schedule's slots of all stages in one order in which each can be replayed after those it needs. Immutable.
struct SlotOrder {
  ScheduleShape shape;
  bool split_backward = false;
  bool blocking = false;
  std::vector<StepKind> kinds;
  // One entry per step, in replay order. Step k ends at `ends[first_step() + k]` of the replay's workspace; before
  // them are the start of each stage and a zero.
  std::vector<std::uint32_t> kind;
  std::vector<std::uint32_t> after; ///< index into `ends` of what the step needs from another stage
  // Slots by stage, in the stage's order: stage i has [offset[i], offset[i + 1]).
  std::vector<std::uint32_t> offset;
  std::vector<ScheduleSlot> slots;
  std::vector<InFlight> in_flight;        ///< of each slot
  std::vector<std::uint32_t> step_of;     ///< step of each slot
  std::vector<std::uint32_t> previous_of; ///< index into `ends` of what the stage did before that slot
  // Slots that the memory fold must visit when every chunk frees what it retains, see slot_memory.h.
  std::vector<std::uint32_t> fold_offset;
  std::vector<std::uint32_t> fold_slot; ///< index within the stage
  std::vector<std::uint32_t> fold_kind;
  std::vector<InFlight> fold_in_flight;

  [[nodiscard]] std::size_t stages() const { return static_cast<std::size_t>(shape.stages); }
  [[nodiscard]] std::size_t first_step() const { return stages() + 1; }
  /// Kind of slot `index` of the stage.
  [[nodiscard]] const StepKind& kind_of(std::size_t stage, std::size_t index) const {
    return kinds[kind[step_of[offset[stage] + index]]];
  }
};

/// Builds the order of a shape that is `legal` and, when `blocking`, `legal_blocking`. `blocking`: transfers occupy
/// compute of both ends, as in Megatron without overlap: after a slot its output is sent, before a slot its input is
/// received, each end waits until the other has come to the transfer, and then for its duration. Transfers with the
/// same peer between two slots are one batch (send_forward_recv_backward); with several chunks, all transfers between
/// two slots or between two pairs of F and B are one batch. `remembers`: slots are told apart by the pass before them
/// (SlotCosts::after).
[[nodiscard]] SlotOrder make_slot_order(const Schedule& schedule, const ScheduleShape& shape, bool blocking,
                                        bool remembers = false);

/// Orders built once and shared. Thread-safe; references stay valid as long as the table.
class ScheduleTable {
public:
  [[nodiscard]] const SlotOrder& get(const Schedule& schedule, const ScheduleShape& shape, bool blocking = false,
                                     bool remembers = false);

private:
  using Key = std::tuple<std::string_view, int, int, int, int, SlotWeights, bool,
                         bool>; ///< the id lives as long as the catalogue
  std::shared_mutex mutex_;
  std::map<Key, std::unique_ptr<const SlotOrder>> orders_;
};

} // namespace foretrain
