#pragma once

#include <string>
#include <vector>

#include "core/program/builder.h"

namespace foretrain::layers {

/// Norm of the queries, or of the keys, between their projection and the rotary embedding. Its kind is that of the
/// model's other norms.
struct QueryKeyNorm {
  std::string name;           ///< "q_norm" or "k_norm"
  std::int64_t columns = 0;   ///< of a row of queries (keys) on this rank: heads · head_dim
  std::int64_t statistic = 0; ///< numbers that one row takes: one per head, or one where the norm runs over all heads
  int input = -1;             ///< a copy of the columns, saved; −1: unfused, which saves `cast` instead
  int output = -1;
  int statistics = -1;
  int cast = -1;            ///< unfused: the input in fp32, saved
  int product = -1;         ///< unfused: the normalised value before the weight, saved
  int squares = -1;         ///< over heads that tp splits: each row's sum of squares
  std::vector<int> weights; ///< empty: no norm
};

/// The model's norm of `heads` query (or key) heads, `local` of them on this rank; `name` is "q" or "k". Over each
/// head: one weight for all heads, held by every tp rank, whose gradient is of this rank's heads alone. Over all heads:
/// the weight is split like the heads, and each row's sum of squares is added up over tp
/// (NVIDIA-NeMo/Megatron-Bridge@067f987df models/minimax_m2/minimax_m2_provider.py _FullDimRMSNorm, which is made of
/// operators of its own).
[[nodiscard]] QueryKeyNorm declare_qk_norm(BlockBuilder& b, const std::string& name, int heads, int local);

/// Reads its columns of `mixed` (queries, keys and values of a row side by side).
///
/// Saved for the backward, with TransformerEngine (pytorch/ops/basic/rmsnorm.py: input and 1/rms in fp32) as with
/// LibTorch: the input, since the projection's output is split by then (TransformerEngine makes its input contiguous),
/// and one number per row and head. No recomputation of norms covers it (NVIDIA/Megatron-LM@d98e8a64d
/// core/transformer/transformer_config.py: "layernorm" is the input's norm and that before the feed-forward).
void qk_norm_forward(BlockBuilder& b, const QueryKeyNorm& norm, int mixed);

/// From the gradient of its output to its columns of `grad_mixed`. Over heads that tp splits, Megatron-Bridge takes the
/// added-up squares for a constant of the other ranks (a collective that autograd does not know) and sends nothing
/// here; this executor's gradient is the exact one, and adds one number per row up over tp.
void qk_norm_backward(BlockBuilder& b, const QueryKeyNorm& norm, int grad_output, int grad_mixed);

} // namespace foretrain::layers
