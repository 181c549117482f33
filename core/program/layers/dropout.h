#pragma once

#include <string>
#include <vector>

#include "core/program/axes/tensor.h"
#include "core/program/builder.h"

namespace foretrain::layers {

/// Dropout before a residual sum (Megatron's bias-dropout-add) or after the embedding: saves one byte per element for
/// the backward (arXiv:2205.05198, section 4.1). Without dropout there is no mask and nothing to do.
struct Dropout {
  int mask = -1;
  std::int64_t rows = 0; ///< tokens
};

[[nodiscard]] inline Dropout declare_dropout(BlockBuilder& b, const std::string& name, std::int64_t rows) {
  const LayerContext& c = b.context();
  if (!(c.job->dropout > 0)) return {};
  return {b.buffer(name + ".mask", DType::int8, {rows, c.model->hidden}, MemoryPart::activations), rows};
}

/// What the sum writes: its result, and the mask where there is one.
[[nodiscard]] inline std::vector<int> with_mask(int output, const Dropout& dropout) {
  std::vector<int> writes = {output};
  if (dropout.mask >= 0) writes.push_back(dropout.mask);
  return writes;
}

/// Gradient of the branch before dropout: the masked copy, or `grad` itself.
[[nodiscard]] inline int dropout_backward(BlockBuilder& b, const Dropout& dropout, int grad, const std::string& name) {
  if (dropout.mask < 0) return grad;
  const LayerContext& c = b.context();
  const int masked = b.temporary("d" + name + ".masked", {dropout.rows, c.model->hidden});
  const double elements = static_cast<double>(dropout.rows) * c.model->hidden;
  b.compute(Segment::residual, {grad, dropout.mask}, {masked},
            {traffic(c, (2 * static_cast<double>(c.width) + 1) * elements)});
  return masked;
}

} // namespace foretrain::layers
