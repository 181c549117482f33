#pragma once

namespace foretrain {

/// What layouts of a space differ in, in the order in which the space is walked, outermost first. Something that
/// depends on dimensions up to one is decided once for all layouts that share them.
enum class Dimension {
  degrees, ///< tp, pp, cp, ep, etp, dp
  schedule,
  sharding,
  offload,
  micro_batch,
  sequence_parallel, ///< and whether tensor-parallel collectives run beside their products
  context,
  dispatch,
  recompute, ///< the whole layout
};
inline constexpr int kDimensions = 9;

} // namespace foretrain
