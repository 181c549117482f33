#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

/// The arithmetic of a transformer, written by hand: forward, gradient of inputs, gradient of weights. No autograd:
/// weights are never leaves, and weight gradients add into buffers that exist already.
///
/// Rows of an activation are tokens: row = sequence · length + position. Outputs are given and written in place. What a
/// kernel takes beyond them is in core/program/layers/scratch.cpp, to the byte.
namespace foretrain::kernels {

using at::Tensor;

// Norms. `statistics`: [1, rows] 1/rms, or [2, rows] mean and 1/deviation when there is a bias (LayerNorm).
inline constexpr double kNormEpsilon = 1e-5;
/// y = (x − mean) / deviation · w + b; without a bias y = x / rms · w (RMSNorm, arXiv:1910.07467).
void norm(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y, Tensor& statistics);
/// Writes dx (plus `residual` when given) and adds to the gradients of weight and bias. `dy` may be some columns of
/// wider rows.
void norm_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                   const Tensor* residual, Tensor& dx, Tensor& dweight, Tensor* dbias);

/// y = x Wᵀ + b.
void linear(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y);
/// dx = dy W.
void linear_input_gradient(const Tensor& dy, const Tensor& weight, Tensor& dx);
/// dW += dyᵀ x; db += column sums of dy.
void linear_weight_gradient(const Tensor& x, const Tensor& dy, Tensor& dweight, Tensor* dbias);
/// Their two parts.
void add_product(const Tensor& dy, const Tensor& x, Tensor dweight);
void add_bias_gradient(const Tensor& dy, Tensor& dbias);

inline constexpr double kRopeBase = 10000;
/// Cosines and sines of position · base^(−2i/width): [2, positions, width/2].
[[nodiscard]] Tensor rope_turns(const std::vector<std::int64_t>& positions, std::int64_t width, at::ScalarType type);
struct RopeShape {
  std::int64_t query = 0; ///< query heads of this rank
  std::int64_t kv = 0;    ///< key and value heads of this rank
  std::int64_t width = 0; ///< of a head
  Tensor turns;           ///< undefined: queries and keys are only split off
};
/// Rows of queries, keys and values: tensors of their own, or columns of wider rows.
struct HeadRows {
  Tensor q;
  Tensor k;
  Tensor v;
};
/// The three in rows of [Q | K | V].
[[nodiscard]] HeadRows parts_of(const Tensor& qkv, const RopeShape& shape);
/// Turns Q and K by their positions and copies V: halves of a head are the two coordinates (RoFormer, arXiv:2104.09864,
/// in the order of GPT-NeoX).
void rope(const HeadRows& from, const RopeShape& shape, const HeadRows& to);
/// Turns dQ and dK back and copies dV.
void rope_backward(const HeadRows& from, const RopeShape& shape, const HeadRows& to);

/// Which query sees which key. Keys and queries of a sequence are rows in the order of these lists.
struct AttentionShape {
  std::int64_t query = 0;  ///< query heads
  std::int64_t kv = 0;     ///< key and value heads; divides `query`
  std::int64_t window = 0; ///< keys that a query sees; 0 = all up to its own position
  std::vector<std::int64_t> query_positions;
  std::vector<std::int64_t> key_positions;
};
struct AttentionInputs {
  Tensor q; ///< [sequences · queries, query · width]
  Tensor k; ///< [sequences · keys, kv · width]
  Tensor v; ///< [sequences · keys, kv · value width]
};
struct AttentionGradients {
  Tensor out;
  Tensor logsumexp;
  Tensor dout;
};
/// Query rows that are worked on at once.
inline constexpr std::int64_t kQueryBlock = 128;
/// No keys seen yet: out 0, log-sum-exp −∞.
void attention_start(Tensor& out, Tensor& logsumexp);
/// Causal softmax attention over these keys and all that came before; `logsumexp` [rows, query heads] is of the scaled
/// scores. Keys may come in any number of parts.
void attention(const AttentionInputs& in, const AttentionShape& shape, Tensor& out, Tensor& logsumexp);
/// Backward from the final log-sum-exp, for the same parts: P is computed again, D = rowsum(dO ∘ O) (FlashAttention-2,
/// arXiv:2307.08691). Adds to the gradients.
void attention_backward(const AttentionInputs& in, const AttentionGradients& g, const AttentionShape& shape, Tensor& dq,
                        Tensor& dk, Tensor& dv);

/// Gated: [gate | up] → silu(gate) · up (SwiGLU, arXiv:2002.05202); else GELU by the error function.
void activation(const Tensor& up, bool gated, Tensor& hidden);
void activation_backward(const Tensor& up, const Tensor& dhidden, bool gated, Tensor& dup);

/// Rows of a vocabulary table on one rank: global rows first … first + rows of the table.
/// A token of another rank gives zeros.
void embedding(const Tensor& ids, const Tensor& table, std::int64_t first, Tensor& rows);
/// rows[i] += table[ids[i]].
void add_rows(const Tensor& ids, const Tensor& table, Tensor& rows);
void embedding_weight_gradient(const Tensor& ids, const Tensor& drows, std::int64_t first, Tensor& dtable);

/// Cross-entropy over a vocabulary that may be split over ranks. `valid`: columns of this rank that are no padding.
struct Vocabulary {
  std::int64_t first = 0; ///< global row of column 0
  std::int64_t valid = 0;
};
/// Elements of the logits that are copied at once, and the rows that makes.
inline constexpr std::int64_t kLossElements = 1 << 16;
[[nodiscard]] std::int64_t loss_rows(std::int64_t rows, std::int64_t columns);
/// Largest logit of each row.
void loss_maximum(const Tensor& logits, const Vocabulary& vocabulary, Tensor& maximum);
/// The target of a row without one: it adds nothing to the loss, and its gradient is zero.
inline constexpr std::int64_t kNoTarget = -1;
/// sums[0] = Σ exp(logit − maximum); sums[1] = the target's logit − maximum where this rank has it, else 0.
void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums);
/// Writes the gradient of scale · Σ loss over the logits: (softmax − one-hot) · scale, padding zero. Returns
/// Σ rows with a target (ln sums[0] − sums[1]), not scaled.
double loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                     const Vocabulary& vocabulary, double scale);

} // namespace foretrain::kernels
