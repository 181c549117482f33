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

/// Backward of `enter`: reduces the column-split GEMM's input gradient over tp; this rank's share. `after`: a mark that
/// it waits for, −1: none.
int leave_backward(BlockBuilder& b, int grad_partial, const std::string& name, std::int64_t width, int after = -1);

/// The same, with the GEMM's weight gradient, which `weight_gradient` emits: beside it or before it, as the semantics
/// say (`dgrad_reduce_overlap`). A split backward runs weight gradients apart.
template <class Body>
int leave_backward_with(BlockBuilder& b, int grad_partial, const std::string& name, std::int64_t width,
                        Body&& weight_gradient) {
  const LayerContext& c = b.context();
  if (c.semantics->dgrad_reduce_overlap || !c.tp_split || c.split_backward) {
    const int share = leave_backward(b, grad_partial, name, width);
    weight_gradient();
    return share;
  }
  const std::size_t before = b.issued();
  weight_gradient();
  const int after = b.issued() > before ? b.mark("d" + name + ".weights") : -1;
  return leave_backward(b, grad_partial, name, width, after);
}

/// Collectives pipelined with the product that reads or writes them (`overlap.tp`; TransformerEngine
/// module/base.py initialize_ub): gathers as a ring of sends, one rank's tokens at a time, this rank's own first; the
/// reduction in four pieces, each beside the next piece of the product.
[[nodiscard]] bool in_pieces(const LayerContext& context);
inline constexpr int kPiecesOfReduction = 4;

/// A region that is being entered: `whole` is what the GEMM reads. In pieces, nothing has been sent yet.
struct Entry {
  int shard = -1;
  int whole = -1;
  bool pieces = false;
};
/// `enter`, or its buffer alone where `pieces`.
Entry begin_enter(BlockBuilder& b, int shard, const std::string& name, std::int64_t width, bool pieces);
/// `enter_backward`, in the same way.
Entry begin_enter_backward(BlockBuilder& b, int grad_shard, const std::string& name, std::int64_t width, bool low,
                           bool pieces);
/// The tokens of one more rank arrive.
void gather_piece(BlockBuilder& b, const Entry& entry, bool first);
/// The buffer that `leave` returns, and one piece of its reduction.
int declare_share(BlockBuilder& b, const std::string& name, std::int64_t width);
void reduce_piece(BlockBuilder& b, int partial, int share, std::int64_t width, bool first);

} // namespace foretrain::tensor
