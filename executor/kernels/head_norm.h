#pragma once

#include <cstdint>

#include <ATen/ATen.h>

/// Norms of queries and keys between their projection and the rotary positions, of each head (Qwen3) or over all heads
/// (OLMoE). The mathematics is that of `norm` in kernels.h; what differs is where a row begins and ends.
namespace foretrain::kernels {

using at::Tensor;

/// Which columns of rows of [Q | K | V] are normed, and how many share a statistic.
struct HeadNormShape {
  std::int64_t first = 0;   ///< column where the queries (keys) begin
  std::int64_t columns = 0; ///< of this rank
  std::int64_t group = 0;   ///< columns that share a statistic: a head's, or all of this rank; divides `columns`
  std::int64_t whole = 0;   ///< columns that the statistic is of: more than `group` where ranks have parts of them
  [[nodiscard]] std::int64_t groups() const { return columns / group; }
};

/// Over heads that ranks have parts of: each row's Σ x², [1, rows]. The ranks' sums are added up before `head_norm`.
void head_squares(const Tensor& mixed, const HeadNormShape& shape, Tensor& squares);
/// Writes its columns as they are into `input` and normed into `y` (both [rows, columns]) and one statistic per row and
/// group, [1 or 2, rows · groups] as `norm` does. `weight` and `bias` [group] are the same for every group. `squares`:
/// over all ranks, where ranks have parts (RMSNorm only); else null.
void head_norm(const Tensor& mixed, const Tensor& weight, const Tensor* bias, const Tensor* squares,
               const HeadNormShape& shape, Tensor& y, Tensor& statistics, Tensor& input);

/// Over heads that ranks have parts of: each row's Σ dy · w · x, [1, rows], to be added up before `head_norm_backward`.
void head_products(const Tensor& input, const Tensor& weight, const Tensor& dy, Tensor& products);
/// Writes its columns of `dmixed` and adds to the gradients of weight and bias.
void head_norm_backward(const Tensor& input, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                        const Tensor* products, const HeadNormShape& shape, Tensor& dmixed, Tensor& dweight,
                        Tensor* dbias);

} // namespace foretrain::kernels
