#include "core/program/layers/norm.h"

#include "core/program/layers/linear.h"

namespace foretrain::layers {
namespace {

/// Bytes per element that operators of their own move in a norm of 16-bit values computed in fp32
/// (weight * (x.float() * rsqrt(mean(x²))).type_as(x), Aleph-Alpha/scaling@78489292b core/nn/norm/rms_norm.py).
/// Forward: cast 2 + 4, square 4 + 4, mean 4, product 4 + 4, cast 4 + 2, weight 2 + 2.
constexpr double kEagerForward = 36;
/// Backward: gradients of value and weight 2 + 2 and 2 + 2 + 2 + 2, cast 2 + 4, product 4 + 4 and 4 + 4 + 4 + 4, mean
/// 4, square (power, doubled, times the gradient) 8 + 8 + 12, sum of both paths 12, cast 4 + 2.
constexpr double kEagerBackward = 92;

} // namespace

double norm_forward_bytes(const LayerContext& c, bool unfused) {
  return unfused ? kEagerForward : 2 * static_cast<double>(c.width);
}

double norm_backward_bytes(const LayerContext& c, bool unfused) {
  return unfused ? kEagerBackward : 3 * static_cast<double>(c.width);
}

Norm declare_norm(BlockBuilder& b, int input, const std::string& name, bool low) {
  const LayerContext& c = b.context();
  const std::int64_t h = c.model->hidden;
  const bool layer_norm = c.model->norm == NormKind::layer;
  Norm norm;
  norm.input = input;
  norm.output =
      low ? b.quantised(name, {c.tokens_sp, h}, MemoryPart::activations) : b.activation(name, {c.tokens_sp, h});
  norm.statistics =
      b.buffer(name + ".statistics", statistics_dtype(c), {layer_norm ? 2 : 1, c.tokens_sp}, MemoryPart::activations);
  if (c.job->norm == NormKernel::unfused) {
    norm.cast = b.buffer(name + ".fp32", statistics_dtype(c), {c.tokens_sp, h}, MemoryPart::activations);
    norm.product = b.activation(name + ".normalised", {c.tokens_sp, h});
  }
  norm.weights = {b.parameter({name, {h}, {h}, false, true})};
  if (layer_norm) norm.weights.push_back(b.parameter({name + ".bias", {h}, {h}, false, true}));
  return norm;
}

void norm_forward(BlockBuilder& b, const Norm& norm) {
  const LayerContext& c = b.context();
  const double elements = static_cast<double>(c.tokens_sp) * c.model->hidden;
  const auto width = static_cast<double>(c.width);
  double moved = norm_forward_bytes(c, norm.product >= 0);
  if (norm.product < 0 && c.low.active && b.at(norm.output).dtype == c.low.type) {
    const double quantised = c.low.activation * c.low.directions;
    moved = c.low.fused_norm ? width + quantised : (2 + c.low.passes) * width + quantised;
  }
  std::vector<int> writes = {norm.output, norm.statistics};
  if (norm.product >= 0) writes.insert(writes.end(), {norm.cast, norm.product});
  Op& op = b.compute(Segment::norm, {norm.input}, std::move(writes), {traffic(c, moved * elements)});
  op.weights = norm.weights;
}

void lead(BlockBuilder& b, const Norm& norm) {
  if (norm.leads && !norm.weights.empty()) norm_forward(b, norm);
}

void repeat(BlockBuilder& b, const Norm& norm) {
  if (norm.repeats && !norm.weights.empty()) recomputed(b, [&] { norm_forward(b, norm); });
}

void norm_backward(BlockBuilder& b, const Norm& norm, int grad_output, int residual_gradient, int grad_input) {
  const LayerContext& c = b.context();
  const double elements = static_cast<double>(c.tokens_sp) * c.model->hidden;
  const auto width = static_cast<double>(c.width);
  std::vector<int> reads = {norm.input, norm.statistics, grad_output};
  // Reads input and gradient, writes the gradient; the residual's gradient is added in the same pass.
  double moved = norm_backward_bytes(c, norm.product >= 0) * elements;
  if (norm.product >= 0) reads.insert(reads.end(), {norm.cast, norm.product});
  if (residual_gradient >= 0) {
    reads.push_back(residual_gradient);
    moved += (norm.product >= 0 ? 3 : 1) * width * elements; // eager: a sum of its own
  }
  Op& op = b.compute(Segment::norm, std::move(reads), {grad_input}, {traffic(c, moved)});
  op.weights = norm.weights;
  if (b.trains(norm.weights.front())) op.weight_gradients = norm.weights;
}

} // namespace foretrain::layers
