#pragma once

#include "simulator/slot_order.h"

namespace foretrain {

/// Fills fold_offset, fold_slot and fold_kind: per stage, the slots left when loops are cut out of the order. A loop is
/// a run of slots that comes back to an earlier state (what each chunk has in flight) and shows no (state, kind of
/// slot) for the first time. With memory a function of the state, the rest has the same peak at the same slot.
void make_fold(SlotOrder& order);

} // namespace foretrain
