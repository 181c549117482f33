#pragma once

#include "core/program/builder.h"

namespace foretrain::layers {

/// Sets what the kernels and collectives of our own executor hold inside each op beyond what it reads and writes. A
/// test compares every kernel with it, to the byte.
void set_executor_scratch(Block& block, const LayerContext& context);

/// Query rows that the attention kernel works on at once, and elements of the logits that the loss copies at once.
inline constexpr std::int64_t kAttentionBlock = 128;
inline constexpr std::int64_t kLossBlock = 1 << 16;
/// Elements that the norm of gradients and the optimizer work on at once.
inline constexpr std::int64_t kOptimizerBlock = 1 << 16;

} // namespace foretrain::layers
