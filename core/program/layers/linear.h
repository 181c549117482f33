#pragma once

#include <string>
#include <vector>

#include "core/program/builder.h"

namespace foretrain::layers {

/// A linear layer y = x Wᵀ on one rank: `in` and `out` are the widths of this rank's weight.
struct Linear {
  Segment segment = Segment::none;
  int weight = -1;
  std::int64_t tokens = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

void linear_forward(BlockBuilder& b, const Linear& linear, int input, int output);
/// dInput = dOutput W.
void linear_input_gradient(BlockBuilder& b, const Linear& linear, int grad_output, int grad_input);
/// dW += dOutputᵀ input. Emitted as W: a split backward runs it apart.
void linear_weight_gradient(BlockBuilder& b, const Linear& linear, int input, int grad_output);

/// Emits `body` as part of W, then returns to the pass before.
template <class Body> void in_weight_pass(BlockBuilder& b, Body&& body) {
  const Pass before = b.pass();
  b.begin(Pass::weight);
  body();
  b.begin(before);
}

/// Whether a selective recomputation covers this module.
[[nodiscard]] bool recomputes(const LayerContext& context, RecomputeModule module);

/// Emits `body` again inside the backward.
template <class Body> void recomputed(BlockBuilder& b, Body&& body) {
  const Pass before = b.pass();
  b.begin(Pass::recompute);
  body();
  b.begin(before);
}

} // namespace foretrain::layers
