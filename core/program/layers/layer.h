#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/program/layers/dropout.h"
#include "core/program/layers/half.h"

namespace foretrain::layers {

/// Attention and feed-forward of a layer with the norms around them and their sums with the residual stream: one after
/// the other, x₂ = x + A(x), y = x₂ + F(x₂), or beside each other, y = x + A(x) + F(x) (GPT-J, GPT-NeoX, Falcon).
class Layer {
public:
  Layer(std::unique_ptr<Half> attention, std::unique_ptr<Half> feed_forward);
  void forward(BlockBuilder& b, int input, int output);
  void backward(BlockBuilder& b, int grad, int grad_input);

private:
  /// One half with its norms and its sum.
  struct Part {
    std::unique_ptr<Half> half;
    std::string norm;
    Norm before, after;
    Dropout dropout;
  };
  void forward_in_turn(BlockBuilder& b, Part& part, int input, int sum);
  void backward_in_turn(BlockBuilder& b, Part& part, int grad, int grad_input);
  void forward_beside(BlockBuilder& b, int input, int output);
  void backward_beside(BlockBuilder& b, int grad, int grad_input);

  Part attention_, feed_forward_;
};

/// Parallel halves whose partial sums are added before one tensor-parallel reduction.
[[nodiscard]] bool reduces_jointly(const LayerContext& context, FeedForward feed_forward);

} // namespace foretrain::layers
