#pragma once

#include <cstdint>
#include <string>

#include "core/program/builder.h"

/// Tensor parallelism, with and without sequence parallelism (Megatron-LM tensor_parallel/layers.py; arXiv:2205.05198).
///
/// A region is entered before a column-split weight and left after a row-split one. Without sequence parallelism the
/// entry is free in forward and an all-reduce in backward, the exit an all-reduce in forward and free in backward. With
/// it they are all-gather and reduce-scatter, mirrored in backward; the saved input shard is gathered once more for the
/// weight gradient.
namespace foretrain::tensor {

/// Forward entry: the buffer that the column-split GEMM reads (`shard` itself without sequence parallelism). `width` is
/// the row width of the tensor.
int enter(BlockBuilder& b, int shard, const std::string& name, std::int64_t width);

/// The same tensor in backward: gathered once more, or what the forward gathered where the semantics keep that.
int enter_again(BlockBuilder& b, int shard, const std::string& name, std::int64_t width);

/// Forward exit: reduces `partial` over tp; the buffer that holds this rank's share.
int leave(BlockBuilder& b, int partial, const std::string& name, std::int64_t width);

/// Backward of `leave`: the whole gradient that the row-split GEMM's backward reads. `low`: of a linear layer in 8 or 4
/// bits, which gathers it quantised.
int enter_backward(BlockBuilder& b, int grad_shard, const std::string& name, std::int64_t width, bool low = false);

/// Backward of `enter`: reduces the column-split GEMM's input gradient over tp; this rank's share.
int leave_backward(BlockBuilder& b, int grad_partial, const std::string& name, std::int64_t width);

} // namespace foretrain::tensor
