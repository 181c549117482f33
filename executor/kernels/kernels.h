#pragma once

#include <cstdint>
#include <optional>

#include <ATen/ATen.h>

/// The arithmetic of a dense transformer, written by hand: forward, gradient of inputs, gradient of weights. No
/// autograd: weights are never leaves, and weight gradients add into buffers that exist already.
///
/// Rows of an activation are tokens: row = sequence · length + position. Outputs are given and written in place.
namespace foretrain::kernels {

using at::Tensor;

// Norms. `statistics`: [1, rows] 1/rms, or [2, rows] mean and 1/deviation when there is a bias (LayerNorm).
inline constexpr double kNormEpsilon = 1e-5;
/// y = (x − mean) / deviation · w + b; without a bias y = x / rms · w (RMSNorm, arXiv:1910.07467).
void norm(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y, Tensor& statistics);
/// Writes dx (plus `residual` when given) and adds to the gradients of weight and bias.
void norm_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                   const Tensor* residual, Tensor& dx, Tensor& dweight, Tensor* dbias);

/// y = x Wᵀ + b.
void linear(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y);
/// dx = dy W.
void linear_input_gradient(const Tensor& dy, const Tensor& weight, Tensor& dx);
/// dW += dyᵀ x; db += column sums of dy.
void linear_weight_gradient(const Tensor& x, const Tensor& dy, Tensor& dweight, Tensor* dbias);

/// Where the rows of an activation lie in their sequences, and how heads are laid out.
struct Heads {
  std::int64_t length = 0; ///< tokens of a sequence
  std::int64_t query = 0;  ///< query heads of this rank
  std::int64_t kv = 0;     ///< key and value heads of this rank; divides `query`
  std::int64_t width = 0;  ///< of a head
  std::int64_t window = 0; ///< keys that a query sees; 0 = all before it and itself
};
inline constexpr double kRopeBase = 10000;
/// Splits rows of [Q | K | V] and turns Q and K by their positions: halves of a head are the two coordinates (RoFormer,
/// arXiv:2104.09864, in the order of GPT-NeoX). `rotary` false: splits only.
void rope(const Tensor& qkv, const Heads& heads, bool rotary, Tensor& q, Tensor& k, Tensor& v);
/// Turns dQ and dK back and joins the three.
void rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Heads& heads, bool rotary, Tensor& dqkv);

/// Causal softmax attention; `logsumexp` [rows, query heads] is of the scaled scores.
void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Heads& heads, Tensor& out, Tensor& logsumexp);
/// Backward from the log-sum-exp: P is computed again, D = rowsum(dO ∘ O) (FlashAttention-2, arXiv:2307.08691).
void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& logsumexp,
                        const Tensor& dout, const Heads& heads, Tensor& dq, Tensor& dk, Tensor& dv);

/// Gated: [gate | up] → silu(gate) · up (SwiGLU, arXiv:2002.05202); else GELU by the error function.
void activation(const Tensor& up, bool gated, Tensor& hidden);
void activation_backward(const Tensor& up, const Tensor& dhidden, bool gated, Tensor& dup);

/// Rows of a vocabulary table on one rank: global rows first … first + rows of the table.
/// A token of another rank gives zeros.
void embedding(const Tensor& ids, const Tensor& table, std::int64_t first, Tensor& rows);
void embedding_weight_gradient(const Tensor& ids, const Tensor& drows, std::int64_t first, Tensor& dtable);

/// Cross-entropy over a vocabulary that may be split over ranks. `valid`: columns of this rank that are no padding.
struct Vocabulary {
  std::int64_t first = 0; ///< global row of column 0
  std::int64_t valid = 0;
};
/// Largest logit of each row.
void loss_maximum(const Tensor& logits, const Vocabulary& vocabulary, Tensor& maximum);
/// sums[0] = Σ exp(logit − maximum); sums[1] = the target's logit − maximum where this rank has it, else 0.
void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums);
/// Writes the gradient of scale · Σ loss over the logits: (softmax − one-hot) · scale, padding zero. Returns
/// Σ rows (ln sums[0] − sums[1]), not scaled.
double loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                     const Vocabulary& vocabulary, double scale);

} // namespace foretrain::kernels
