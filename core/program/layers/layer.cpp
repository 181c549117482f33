#include "core/program/layers/layer.h"

#include <algorithm>

#include "core/program/axes/tensor.h"
#include "core/program/layers/linear.h"

namespace foretrain::layers {
namespace {

std::vector<std::int64_t> share_of(const LayerContext& c) {
  return {c.tokens_sp, c.model->hidden};
}

/// Traffic of `passes` over `rows` of the residual stream.
Kernel passes_over(const LayerContext& c, std::size_t passes, std::int64_t rows) {
  return traffic(c, static_cast<double>(passes) * static_cast<double>(c.width * rows) * c.model->hidden);
}

/// The norm before a half; where norms stand after the halves alone, the input itself.
Norm entry(BlockBuilder& b, int input, const std::string& name, bool low) {
  if (b.context().model->norm_placement != NormPlacement::after) return declare_norm(b, input, name, low);
  Norm none;
  none.input = none.output = input;
  return none;
}

void entry_backward(BlockBuilder& b, const Norm& norm, int grad, int residual, int grad_input) {
  const LayerContext& c = b.context();
  if (norm.weights.empty())
    b.compute(Segment::residual, {grad, residual}, {grad_input}, {passes_over(c, 3, c.tokens_sp)});
  else
    norm_backward(b, norm, grad, residual, grad_input);
}

} // namespace

bool reduces_jointly(const LayerContext& c, FeedForward feed_forward) {
  const std::vector<BlockFeature>& list = c.semantics->block_features;
  return c.model->parallel_block && feed_forward == FeedForward::dense &&
         std::find(list.begin(), list.end(), BlockFeature::joint_parallel) != list.end();
}

Layer::Layer(std::unique_ptr<Half> attention, std::unique_ptr<Half> feed_forward)
    : attention_{std::move(attention), "norm1", {}, {}, {}}, feed_forward_{
                                                                 std::move(feed_forward), "norm2", {}, {}, {}} {}

void Layer::forward(BlockBuilder& b, int input, int output) {
  const LayerContext& c = b.context();
  if (c.model->parallel_block) {
    forward_beside(b, input, output);
    return;
  }
  const int middle = b.activation("x2", share_of(c));
  forward_in_turn(b, attention_, input, middle);
  forward_in_turn(b, feed_forward_, middle, output);
}

void Layer::backward(BlockBuilder& b, int grad, int grad_input) {
  const LayerContext& c = b.context();
  if (c.model->parallel_block) {
    backward_beside(b, grad, grad_input);
    return;
  }
  const int middle = b.temporary("dx2", share_of(c));
  backward_in_turn(b, feed_forward_, grad, middle);
  backward_in_turn(b, attention_, middle, grad_input);
}

void Layer::forward_in_turn(BlockBuilder& b, Part& part, int input, int sum) {
  const LayerContext& c = b.context();
  part.before = entry(b, input, part.norm, part.half->takes_quantised(c));
  std::vector<int> terms = part.half->forward(b, part.before);
  if (terms.empty()) return;
  if (c.model->norm_placement != NormPlacement::before) {
    int whole = terms.front();
    if (terms.size() > 1) {
      whole = b.activation(part.norm + ".sum", share_of(c));
      b.compute(Segment::residual, terms, {whole}, {passes_over(c, terms.size() + 1, c.tokens_sp)});
    }
    b.saves(whole); // the norm's input
    part.after = declare_norm(b, whole, part.norm + ".after");
    norm_forward(b, part.after);
    terms = {part.after.output};
  }
  terms.insert(terms.begin(), input);
  part.dropout = declare_dropout(b, std::string(part.half->name()), c.tokens_sp);
  b.compute(Segment::residual, terms, with_mask(sum, part.dropout), {passes_over(c, terms.size() + 1, c.tokens_sp)});
}

void Layer::backward_in_turn(BlockBuilder& b, Part& part, int grad, int grad_input) {
  int terms = dropout_backward(b, part.dropout, grad, std::string(part.half->name()));
  if (b.context().model->norm_placement != NormPlacement::before) {
    const int whole = b.temporary("d" + part.norm + ".after", share_of(b.context()));
    norm_backward(b, part.after, terms, -1, whole);
    terms = whole;
  }
  entry_backward(b, part.before, part.half->backward(b, terms), grad, grad_input);
}

/// Each half is added by an operation of its own (transformers modeling_gpt_neox.py; self_attn_bda and mlp_bda of
/// NeMo's Falcon layer). Jointly: partial sums are added, reduced once, and added to the input
/// (EleutherAI/gpt-neox@ea7aefd8f megatron/model/transformer.py, gpt_j_residual).
void Layer::forward_beside(BlockBuilder& b, int input, int output) {
  const LayerContext& c = b.context();
  const bool one_norm = c.model->norms_per_layer == 1;
  const bool low = attention_.half->takes_quantised(c) && (!one_norm || feed_forward_.half->takes_quantised(c));
  attention_.before = entry(b, input, attention_.norm, low);
  attention_.before.repeats = !one_norm; // the feed-forward's backward comes first
  std::vector<int> terms = attention_.half->forward(b, attention_.before);
  feed_forward_.before = attention_.before;
  feed_forward_.before.leads = false;
  feed_forward_.before.repeats = true;
  if (!one_norm) feed_forward_.before = entry(b, input, feed_forward_.norm, feed_forward_.half->takes_quantised(c));
  const std::vector<int> others = feed_forward_.half->forward(b, feed_forward_.before);
  if (others.empty()) return;
  terms.insert(terms.end(), others.begin(), others.end());
  const bool jointly = reduces_jointly(c, FeedForward::dense);
  const std::int64_t rows = jointly ? c.tokens : c.tokens_sp;
  std::vector<int> masks;
  for (Part* part : {&attention_, &feed_forward_}) {
    part->dropout = declare_dropout(b, std::string(part->half->name()), rows);
    if (part->dropout.mask >= 0) masks.push_back(part->dropout.mask);
  }
  if (!jointly) {
    const std::size_t sums = terms.size();
    terms.insert(terms.begin(), input);
    masks.insert(masks.begin(), output);
    b.compute(Segment::residual, terms, masks, {passes_over(c, 3 * sums, rows)});
    return;
  }
  const int partial = b.temporary("halves", {c.tokens, c.model->hidden});
  masks.insert(masks.begin(), partial);
  b.compute(Segment::residual, terms, masks, {passes_over(c, 3, rows)});
  const int share = tensor::leave(b, partial, "halves", c.model->hidden);
  b.compute(Segment::residual, {input, share}, {output}, {passes_over(c, 3, c.tokens_sp)});
}

/// Gradients of the halves' inputs are reduced apart: each column-parallel layer reduces its own.
void Layer::backward_beside(BlockBuilder& b, int grad, int grad_input) {
  const LayerContext& c = b.context();
  const bool jointly = reduces_jointly(c, FeedForward::dense);
  const int terms = jointly ? tensor::enter_backward(b, grad, "halves", c.model->hidden) : grad;
  const auto half_backward = [&](Part& part) {
    return part.half->backward(b, dropout_backward(b, part.dropout, terms, std::string(part.half->name())));
  };
  const int from_feed_forward = half_backward(feed_forward_);
  if (c.model->norms_per_layer == 1) {
    const int from_attention = half_backward(attention_);
    const int both = b.temporary("dnorm1.both", share_of(c));
    b.compute(Segment::residual, {from_feed_forward, from_attention}, {both}, {passes_over(c, 3, c.tokens_sp)});
    entry_backward(b, attention_.before, both, grad, grad_input);
    return;
  }
  const int middle = b.temporary("dx2", share_of(c));
  entry_backward(b, feed_forward_.before, from_feed_forward, grad, middle);
  entry_backward(b, attention_.before, half_backward(attention_), middle, grad_input);
}

} // namespace foretrain::layers
