#include "core/program/layers/qk_norm.h"

#include "core/program/layers/norm.h"

namespace foretrain::layers {
namespace {

bool over_all_heads(const LayerContext& c) {
  return c.model->qk_norm == QkNorm::full_width;
}

/// Megatron's family has the norm over all heads as operators only.
bool unfused(const LayerContext& c) {
  return c.job->norm == NormKernel::unfused || (over_all_heads(c) && c.semantics->family == SemanticsFamily::megatron);
}

double elements_of(const LayerContext& c, const QueryKeyNorm& norm) {
  return static_cast<double>(c.tokens) * static_cast<double>(norm.columns);
}

/// Each row's Σ dy · w · x over the heads of all tp ranks: y = x · w / rms, so dx has a share −x · Σ dy·w·x /
/// (rms³ · columns).
int sum_of_products(BlockBuilder& b, const QueryKeyNorm& norm, int grad_output) {
  const LayerContext& c = b.context();
  const int products = b.buffer(norm.name + ".products", statistics_dtype(c), {1, c.tokens}, MemoryPart::temporaries);
  b.compute(Segment::norm, {norm.input, grad_output}, {products},
            {traffic(c, 2 * static_cast<double>(c.width) * elements_of(c, norm))})
      .weights = norm.weights;
  const Bytes bytes = b.at(products).bytes;
  b.collective(Collective::all_reduce, Group::tp, bytes, {products}, {products}).dtype = statistics_dtype(c);
  return products;
}

} // namespace

QueryKeyNorm declare_qk_norm(BlockBuilder& b, const std::string& name, int heads, int local) {
  const LayerContext& c = b.context();
  QueryKeyNorm norm;
  if (c.model->qk_norm == QkNorm::none) return norm;
  const std::int64_t d = c.model->head_dim;
  const bool wide = over_all_heads(c);
  const bool layer_norm = c.model->norm == NormKind::layer;
  const std::string full = name + "_norm";
  norm.name = full;
  norm.columns = local * d;
  norm.statistic = wide ? 1 : local;
  norm.output = b.temporary(name + ".normed", {c.tokens, norm.columns});
  norm.statistics = b.buffer(full + ".statistics", statistics_dtype(c), {layer_norm ? 2 : 1, c.tokens * norm.statistic},
                             MemoryPart::activations);
  if (unfused(c)) {
    norm.cast = b.buffer(full + ".fp32", statistics_dtype(c), {c.tokens, norm.columns}, MemoryPart::activations);
    norm.product = b.activation(full + ".normalised", {c.tokens, norm.columns});
  } else {
    norm.input = b.activation(full + ".input", {c.tokens, norm.columns});
  }
  if (wide && c.tp_split)
    norm.squares = b.buffer(full + ".squares", statistics_dtype(c), {1, c.tokens}, MemoryPart::temporaries);
  Parameter weight{full, {wide ? heads * d : d}, {wide ? norm.columns : d}, false, !wide};
  weight.partial_tp = !wide && c.tp_split;
  Parameter bias = weight;
  bias.name += ".bias";
  norm.weights = {b.parameter(std::move(weight))};
  if (layer_norm) norm.weights.push_back(b.parameter(std::move(bias)));
  return norm;
}

void qk_norm_forward(BlockBuilder& b, const QueryKeyNorm& norm, int mixed) {
  if (norm.weights.empty()) return;
  const LayerContext& c = b.context();
  const double elements = elements_of(c, norm);
  std::vector<int> reads = {mixed};
  std::vector<int> writes = {norm.output, norm.statistics};
  if (norm.product >= 0)
    writes.insert(writes.end(), {norm.cast, norm.product});
  else
    writes.push_back(norm.input);
  if (norm.squares >= 0) {
    b.compute(Segment::norm, {mixed}, {norm.squares}, {traffic(c, static_cast<double>(c.width) * elements)});
    const Bytes bytes = b.at(norm.squares).bytes;
    b.collective(Collective::all_reduce, Group::tp, bytes, {norm.squares}, {norm.squares}).dtype = statistics_dtype(c);
    reads.push_back(norm.squares);
  }
  Op& op = b.compute(Segment::norm, std::move(reads), std::move(writes),
                     {traffic(c, norm_forward_bytes(c, norm.product >= 0) * elements)});
  op.weights = norm.weights;
}

void qk_norm_backward(BlockBuilder& b, const QueryKeyNorm& norm, int grad_output, int grad_mixed) {
  if (norm.weights.empty()) return;
  const LayerContext& c = b.context();
  std::vector<int> reads = {norm.product >= 0 ? norm.cast : norm.input, norm.statistics, grad_output, grad_mixed};
  if (norm.product >= 0) reads.push_back(norm.product);
  if (norm.squares >= 0 && c.semantics->family == SemanticsFamily::foretrain)
    reads.push_back(sum_of_products(b, norm, grad_output));
  Op& op = b.compute(Segment::norm, std::move(reads), {grad_mixed},
                     {traffic(c, norm_backward_bytes(c, norm.product >= 0) * elements_of(c, norm))});
  op.weights = norm.weights;
  if (b.trains(norm.weights.front())) op.weight_gradients = norm.weights;
}

} // namespace foretrain::layers
