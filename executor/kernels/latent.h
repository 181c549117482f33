#pragma once

#include <cstdint>

#include <ATen/ATen.h>

/// Kernels of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
namespace foretrain::kernels {

using at::Tensor;

/// RMSNorm of the first columns of x, as many as the weight has; nothing is saved.
void latent_norm(const Tensor& x, const Tensor& weight, Tensor& y);
/// Writes dx, whose further columns are `rest`, and adds to the weight's gradient.
void latent_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& dy, const Tensor* rest, Tensor& dx,
                          Tensor& dweight);

struct LatentShape {
  std::int64_t heads = 0;  ///< of this rank
  std::int64_t plain = 0;  ///< width of a head without positions
  std::int64_t turned = 0; ///< width with rotary positions
  std::int64_t value = 0;
  Tensor turns;
};
/// Queries [plain | turned] per head; keys and values [plain | value] per head; the turned part of the keys is the end
/// of the rows of `compressed`, the same for all heads.
void latent_rope(const Tensor& queries, const Tensor& keys_values, const Tensor& compressed, const LatentShape& shape,
                 Tensor& q, Tensor& k, Tensor& v);
void latent_rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const LatentShape& shape,
                          Tensor& dqueries, Tensor& dkeys_values, Tensor& dshared);

} // namespace foretrain::kernels
