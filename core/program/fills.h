#pragma once

#include "core/program/context.h"
#include "core/program/program.h"

namespace foretrain {

/// Under deterministic algorithms every tensor that is made without values is filled first (PyTorch
/// fill_uninitialized_memory, ATen/native/TensorFactories.h fill_empty_deterministic_), outputs and temporaries of
/// custom kernels too: one more kernel each. Sums and masks around residuals are PyTorch's own operators, whose outputs
/// are not. After `finish_block`.
void add_fills(const LayerContext& context, Block& block);

} // namespace foretrain
