#pragma once

#include <cstddef>
#include <vector>

#include "core/base/units.h"
#include "simulator/slot_order.h"

namespace foretrain {

/// Memory of one slot: what it leaves behind (negative: it frees), and its highest point above where it starts, at
/// least max(0, net).
struct SlotMemory {
  Bytes net;
  Bytes peak;
  Bytes end{}; ///< what it holds at its end, before what it sends is gone; never above `peak`
  bool operator==(const SlotMemory&) const = default;
};

/// Per chunk, indexed stage * chunks + chunk.
struct SlotMemories {
  Bytes boundary; ///< one tensor between stages; what is in flight beside slots counts in these
  std::vector<SlotMemory> forward;
  std::vector<SlotMemory> backward;      ///< schedules with a whole backward
  std::vector<SlotMemory> input;         ///< schedules that split it
  std::vector<SlotMemory> weight;        ///< schedules that split it
  std::vector<SlotMemory> first_forward; ///< the chunk's first F; empty: as the others
  std::vector<SlotMemory> last_backward; ///< the chunk's last B, or W when split; empty: as the others
};

struct SlotPeak {
  Bytes bytes;          ///< above what the stage holds before its first slot; never negative
  std::size_t slot = 0; ///< index within the stage of the first slot that reaches it
  bool operator==(const SlotPeak&) const = default;
};

/// Peak of a stage: slots folded in schedule order. Exact. Fast when every chunk's passes free what they retain (nets
/// add up to zero, first and last slots aside): then the state is what is in flight, and states are visited once.
[[nodiscard]] SlotPeak slot_peak(const SlotOrder& order, const SlotMemories& memories, std::size_t stage);

/// The same by visiting every slot.
[[nodiscard]] SlotPeak slot_peak_full(const SlotOrder& order, const SlotMemories& memories, std::size_t stage);

/// How often each kind of slot has run on the stage before slot `index`: [source * chunks + chunk], kSlotSources
/// sources. For taking a peak apart.
[[nodiscard]] std::vector<int> slots_before(const SlotOrder& order, std::size_t stage, std::size_t index);

} // namespace foretrain
