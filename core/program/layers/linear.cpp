#include "core/program/layers/linear.h"

#include <algorithm>

namespace foretrain::layers {

void linear_forward(BlockBuilder& b, const Linear& linear, int input, int output) {
  Op& op = b.compute(linear.segment, {input}, {output}, {gemm(b.context(), linear.tokens, linear.out, linear.in)});
  if (linear.weight >= 0) op.weights = {linear.weight};
}

void linear_input_gradient(BlockBuilder& b, const Linear& linear, int grad_output, int grad_input) {
  Op& op = b.compute(linear.segment, {grad_output}, {grad_input},
                     {gemm(b.context(), linear.tokens, linear.in, linear.out, GemmRole::input_gradient)});
  if (linear.weight >= 0) op.weights = {linear.weight};
}

void linear_weight_gradient(BlockBuilder& b, const Linear& linear, int input, int grad_output) {
  in_weight_pass(b, [&] {
    Op& op = b.compute(linear.segment, {input, grad_output}, {},
                       {gemm(b.context(), linear.tokens, linear.out, linear.in, GemmRole::weight_gradient)});
    op.weight_gradients = {linear.weight};
  });
}

bool recomputes(const LayerContext& context, RecomputeModule module) {
  const RecomputeChoice& choice = context.layout.recompute;
  return choice.kind == RecomputeKind::selective &&
         std::find(choice.modules.begin(), choice.modules.end(), module) != choice.modules.end();
}

} // namespace foretrain::layers
