#include "planner/slot_bound.h"

namespace foretrain {

SlotFamily slot_family(const Layout& layout, const Semantics& semantics) {
  const ShardingKind sharding = layout.sharding.kind;
  const bool sharded = sharding == ShardingKind::gradients || sharding == ShardingKind::parameters;
  const bool every =
      sharded && (semantics.family == SemanticsFamily::foretrain || sharding == ShardingKind::gradients ||
                  layout.sharding.reshard_after_forward.value_or(semantics.reshard_after_forward_pp));
  if (layout.schedule.chunks > 1) return every ? SlotFamily::interleaved_every_slot : SlotFamily::interleaved;
  return layout.pp > 1 && every ? SlotFamily::every_slot : SlotFamily::plain;
}

double slot_op_bound(SlotFamily family) {
  switch (family) {
  case SlotFamily::plain:
    return 0.02;
  case SlotFamily::every_slot:
    return 0.03;
  case SlotFamily::interleaved:
    return 0.10;
  case SlotFamily::interleaved_every_slot:
    return 0.30;
  }
  return 0.30;
}

} // namespace foretrain
