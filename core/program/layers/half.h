#pragma once

#include <string_view>
#include <vector>

#include "core/program/builder.h"
#include "core/program/layers/norm.h"

namespace foretrain::layers {

/// Attention or feed-forward of a layer, from the output of its norm to what is added to the residual stream. Some are
/// made not to reduce: their output stays this rank's partial sum over all tokens, and the gradient that they get is
/// gathered already, so that two halves share the collective.
class Half {
public:
  virtual ~Half() = default;
  /// Prefix of the names of what it adds.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Only linear layers read the norm's output: it may be written in the recipe's 8- or 4-bit type.
  [[nodiscard]] virtual bool takes_quantised(const LayerContext& context) const = 0;
  /// Emits the forward, the norm's with it; the terms to add. None: a recomputation that ends before them.
  virtual std::vector<int> forward(BlockBuilder& b, const Norm& norm) = 0;
  /// Emits the backward from the gradient of the terms to that of the norm's output, which it returns.
  virtual int backward(BlockBuilder& b, int grad) = 0;
};

} // namespace foretrain::layers
