#pragma once

#include <string>

#include "core/program/builder.h"

namespace foretrain::layers {

/// Buffers of one norm.
struct Norm {
  int input = -1;  ///< saved
  int output = -1; ///< saved as the next GEMM's input
  int statistics = -1;
  int cast = -1;            ///< unfused: the input in fp32, saved
  int product = -1;         ///< unfused: the normalised value before the weight, saved
  std::vector<int> weights; ///< weight, and bias of LayerNorm; empty: no norm, the output is the input
  // Of a norm that two parallel halves share:
  bool leads = true;   ///< this half's forward emits it
  bool repeats = true; ///< this half's backward emits it where it is recomputed
};

/// RMSNorm or LayerNorm over this rank's tokens. Saves input, output (which the GEMM after it needs) and one fp32
/// number per token (two for LayerNorm), as TransformerEngine's LayerNormLinear does. `name` is "norm1", "norm2" …;
/// `low`: its output is written in the recipe's 8- or 4-bit type.
[[nodiscard]] Norm declare_norm(BlockBuilder& b, int input, const std::string& name, bool low = false);
void norm_forward(BlockBuilder& b, const Norm& norm);
/// Bytes that a norm moves per element. Fused: read and written once; backward, input and gradient read and the
/// gradient written. Unfused: what operators of their own move.
[[nodiscard]] double norm_forward_bytes(const LayerContext& context, bool unfused);
[[nodiscard]] double norm_backward_bytes(const LayerContext& context, bool unfused);
/// The forward of a half's norm, or the same again in its backward.
void lead(BlockBuilder& b, const Norm& norm);
void repeat(BlockBuilder& b, const Norm& norm);
/// dInput from dOutput; adds `residual_gradient` (−1: none) and writes `grad_input`.
void norm_backward(BlockBuilder& b, const Norm& norm, int grad_output, int residual_gradient, int grad_input);

} // namespace foretrain::layers
