#include "core/program/layers/ends.h"

#include "core/program/axes/tensor.h"
#include "core/program/layers/dropout.h"

namespace foretrain::layers {

CrossEntropy cross_entropy_of(const LayerContext& c) {
  const Semantics& s = *c.semantics;
  return c.job->cross_entropy.value_or(c.job->compiled ? s.cross_entropy_compiled.value_or(s.cross_entropy)
                                                       : s.cross_entropy);
}

void Embedding::forward(BlockBuilder& b, int output) {
  const LayerContext& c = b.context();
  const ModelSpec& m = *c.model;
  const std::int64_t h = m.hidden;
  if (owns_table_)
    weight_ = b.parameter({"embedding", {c.vocab_padded, h}, {c.vocab_padded / c.layout.tp, h}, false, false});
  if (m.learned_positions > 0)
    b.parameter({"positions", {m.learned_positions, h}, {m.learned_positions, h}, false, true});
  if (m.embedding_norm) b.parameter({"embedding_norm", {2 * h}, {2 * h}, false, true});
  const int rows = b.temporary("embedding.rows", {c.tokens, h});
  Op& lookup =
      b.compute(Segment::embedding, {}, {rows}, {traffic(c, 2.0 * static_cast<double>(c.width * c.tokens * h))});
  if (weight_ >= 0) lookup.weights = {weight_};
  const int share = tensor::leave(b, rows, "embedding", h);
  // Positions, scaling and the change of order from (batch, sequence) to (sequence, batch) write a copy.
  dropout_ = declare_dropout(b, "embedding", c.tokens_sp);
  const double pass = static_cast<double>(c.width * c.tokens_sp * h);
  Op& copy = b.compute(Segment::embedding, {share}, with_mask(output, dropout_), {traffic(c, 2.0 * pass)});
  if (!m.scaled_embedding) return;
  copy.kernels.push_back(traffic(c, 2.0 * pass)); // one product more, whose factor stands beside it
  copy.scratch = b.at(output).bytes;
}

void Embedding::backward(BlockBuilder& b, int grad_output) {
  const LayerContext& c = b.context();
  const std::int64_t h = c.model->hidden;
  if (c.job->lora) { // a frozen table: nothing below asks for the gradient
    b.compute(Segment::embedding, {grad_output}, {}, {});
    return;
  }
  int grad = dropout_backward(b, dropout_, grad_output, "embedding");
  if (c.model->scaled_embedding) {
    const int scaled = b.temporary("dembedding.scaled", {c.tokens_sp, h});
    b.compute(Segment::embedding, {grad}, {scaled}, {traffic(c, 2.0 * static_cast<double>(c.width * c.tokens_sp * h))});
    grad = scaled;
  }
  const int gathered = tensor::enter_backward(b, grad, "embedding", h);
  in_weight_pass(b, [&] {
    Op& op = b.compute(Segment::embedding, {gathered}, {},
                       {traffic(c, static_cast<double>(c.width) *
                                       static_cast<double>(c.tokens * h + 3 * c.vocab_padded / c.layout.tp * h))});
    if (weight_ >= 0) op.weight_gradients = {weight_};
    // A dense gradient of the whole local table before it is added to the buffer.
    op.scratch = Bytes(c.vocab_padded / c.layout.tp * h * c.width);
  });
}

void Head::forward(BlockBuilder& b, int input) {
  const LayerContext& c = b.context();
  const std::int64_t h = c.model->hidden;
  const std::int64_t local = c.vocab_padded / c.layout.tp;
  norm_ = declare_norm(b, input, "final_norm");
  norm_forward(b, norm_);
  const int gathered = tensor::enter(b, norm_.output, "final_norm", h);
  const int weight = owns_table_ ? b.parameter({"head", {c.vocab_padded, h}, {local, h}, false, false}) : -1;
  head_ = {Segment::head, weight, c.tokens, h, local, false, {}};
  logits_ = b.buffer("logits", c.dtype, {c.tokens, local}, MemoryPart::logits);
  linear_forward(b, head_, gathered, logits_);
  if (c.model->logit_softcap > 0) cap_logits(b);
  loss_forward(b);
}

/// cap · tanh(logits / cap) as three operators, of which the tanh's output is saved; the logits are referenced until
/// the last is done (transformers modeling_gemma2.py; logit_softcapping in NVIDIA-NeMo/Megatron-Bridge@067f987df
/// src/megatron/bridge/models/gemma/gemma2_provider.py).
void Head::cap_logits(BlockBuilder& b) {
  const LayerContext& c = b.context();
  const std::vector<std::int64_t> shape = {c.tokens, head_.out};
  const double pass = static_cast<double>(c.width) * static_cast<double>(c.tokens * head_.out);
  const int raw = logits_;
  tanh_ = b.buffer("logits.tanh", c.dtype, shape, MemoryPart::logits);
  logits_ = b.buffer("logits.capped", c.dtype, shape, MemoryPart::logits);
  b.compute(Segment::loss, {raw}, {tanh_}, {traffic(c, 4 * pass)}).scratch = b.at(raw).bytes; // the quotient
  b.compute(Segment::loss, {raw, tanh_}, {logits_}, {traffic(c, 2 * pass)});
}

/// Backward of the product, the tanh (its output read too) and the quotient.
int Head::uncap_gradient(BlockBuilder& b, int grad) {
  const LayerContext& c = b.context();
  const double pass = static_cast<double>(c.width) * static_cast<double>(c.tokens * head_.out);
  const int raw = b.buffer("dlogits.raw", c.dtype, {c.tokens, head_.out}, MemoryPart::logits);
  b.compute(Segment::loss, {grad, tanh_}, {raw}, {traffic(c, 7 * pass)}).scratch = b.at(raw).bytes;
  return raw;
}

/// Every rank sees the logits of the whole vocabulary; then eager operators: cast to fp32, log-softmax, and in backward
/// the gradients of the picked values, of the log-softmax and of the cast (torch.nn.functional.cross_entropy).
void Head::gathered_loss_forward(BlockBuilder& b) {
  const LayerContext& c = b.context();
  const auto elements = static_cast<double>(c.tokens * c.vocab_padded);
  const auto width = static_cast<double>(c.width);
  const std::vector<std::int64_t> shape = {c.tokens, c.vocab_padded};
  gathered_ = logits_;
  if (c.tp_split) {
    // torch.distributed.all_gather into a list: one flat tensor in the process group, its copies in the list, then the
    // parts joined by columns.
    const int parts = b.buffer("logits.parts", c.dtype, shape, MemoryPart::logits);
    gathered_ = b.buffer("logits.gathered", c.dtype, shape, MemoryPart::logits);
    const Bytes whole = b.at(parts).bytes;
    b.collective(Collective::all_gather, Group::tp, whole, {logits_}, {parts}).scratch = whole;
    b.compute(Segment::loss, {parts}, {gathered_}, {traffic(c, 4 * width * elements)});
  }
  cast_ = b.buffer("loss.logits_fp32", DType::fp32, shape, MemoryPart::logits);
  softmax_ = b.buffer("loss.log_softmax", DType::fp32, shape, MemoryPart::logits);
  b.compute(Segment::loss, {gathered_}, {cast_}, {traffic(c, (width + 4) * elements)});
  b.compute(Segment::loss, {cast_}, {softmax_}, {traffic(c, 8 * elements)});
}

int Head::gathered_loss_backward(BlockBuilder& b) {
  const LayerContext& c = b.context();
  const auto elements = static_cast<double>(c.tokens * c.vocab_padded);
  const auto width = static_cast<double>(c.width);
  const std::vector<std::int64_t> shape = {c.tokens, c.vocab_padded};
  const int picked = b.buffer("loss.dlog_softmax", DType::fp32, shape, MemoryPart::logits);
  const int grad32 = b.buffer("dlogits_fp32", DType::fp32, shape, MemoryPart::logits);
  const int whole = b.buffer("dlogits.whole", c.dtype, shape, MemoryPart::logits);
  b.compute(Segment::loss, {softmax_}, {picked}, {traffic(c, 4 * elements)});
  b.compute(Segment::loss, {picked, softmax_}, {grad32}, {traffic(c, 12 * elements)});
  // The step still holds the output of the model while its backward runs.
  b.compute(Segment::loss, {grad32, gathered_}, {whole}, {traffic(c, (4 + width) * elements)});
  if (!c.tp_split) return whole;
  const int grad = b.buffer("dlogits", c.dtype, {c.tokens, c.vocab_padded / c.layout.tp}, MemoryPart::logits);
  b.compute(Segment::loss, {whole}, {grad}, {traffic(c, 2 * width * elements / c.layout.tp)});
  return grad;
}

void Head::loss_forward(BlockBuilder& b) {
  const LayerContext& c = b.context();
  if (cross_entropy_of(c) == CrossEntropy::gathered) {
    gathered_loss_forward(b);
    return;
  }
  const std::int64_t local = c.vocab_padded / c.layout.tp;
  const auto elements = static_cast<double>(c.tokens * local);
  const auto width = static_cast<double>(c.width);
  std::vector<int> reads = {logits_};
  if (c.tp_split) {
    // Row maximum, then the sum of exponentials and the target's logit: one and two statistics per token.
    const DType type = statistics_dtype(c);
    const std::int64_t bytes = bits_of(type) / 8 * c.tokens;
    const int maximum = b.buffer("loss.maximum", type, {c.tokens}, MemoryPart::temporaries);
    const int sums = b.buffer("loss.sums", type, {2, c.tokens}, MemoryPart::temporaries);
    b.compute(Segment::loss, {logits_}, {maximum}, {traffic(c, width * elements)});
    Op& largest = b.collective(Collective::all_reduce, Group::tp, Bytes(bytes), {maximum}, {maximum});
    largest.dtype = type;
    largest.maximum = true;
    b.compute(Segment::loss, {logits_, maximum}, {sums}, {traffic(c, width * elements)});
    b.collective(Collective::all_reduce, Group::tp, Bytes(2 * bytes), {sums}, {sums}).dtype = type;
    reads.push_back(sums);
    // The logits themselves are not shifted, so their gradient needs the maximum again.
    if (cross_entropy_of(c) == CrossEntropy::fused) reads.push_back(maximum);
  }
  switch (cross_entropy_of(c)) {
  case CrossEntropy::fused:
    b.compute(Segment::loss, reads, {logits_}, {traffic(c, 2 * width * elements)}); // the gradient replaces the logits
    break;
  case CrossEntropy::vocab_parallel:
    softmax_ = b.buffer("loss.softmax", DType::fp32, {c.tokens, local}, MemoryPart::logits);
    b.compute(Segment::loss, reads, {softmax_}, {traffic(c, (width + 4 + 8) * elements)});
    break;
  case CrossEntropy::plain:
    cast_ = b.buffer("loss.logits_fp32", DType::fp32, {c.tokens, local}, MemoryPart::logits);
    softmax_ = b.buffer("loss.log_softmax", DType::fp32, {c.tokens, local}, MemoryPart::logits);
    b.compute(Segment::loss, {logits_}, {cast_}, {traffic(c, (width + 4) * elements)});
    reads = {cast_};
    b.compute(Segment::loss, reads, {softmax_}, {traffic(c, 8 * elements)});
    break;
  case CrossEntropy::gathered:
    break;                     // above
  case CrossEntropy::compiled: // row maximum and sum of exponentials, in one fused pass
    softmax_ = b.buffer("loss.statistics", statistics_dtype(c), {2, c.tokens}, MemoryPart::logits);
    b.compute(Segment::loss, reads, {softmax_}, {traffic(c, width * elements)});
    break;
  }
}

int Head::loss_backward(BlockBuilder& b) {
  const LayerContext& c = b.context();
  const std::int64_t local = c.vocab_padded / c.layout.tp;
  const auto elements = static_cast<double>(c.tokens * local);
  const auto width = static_cast<double>(c.width);
  switch (cross_entropy_of(c)) {
  case CrossEntropy::fused:
    return logits_;
  case CrossEntropy::vocab_parallel: {
    const int grad = b.buffer("dlogits", c.dtype, {c.tokens, local}, MemoryPart::logits);
    b.compute(Segment::loss, {softmax_}, {grad}, {traffic(c, (8 + width) * elements)});
    return grad;
  }
  case CrossEntropy::gathered:
    return gathered_loss_backward(b);
  case CrossEntropy::compiled: {
    const int grad = b.buffer("dlogits", c.dtype, {c.tokens, local}, MemoryPart::logits);
    b.compute(Segment::loss, {softmax_, logits_}, {grad}, {traffic(c, 2 * width * elements)});
    return grad;
  }
  case CrossEntropy::plain: {
    const int grad32 = b.buffer("dlogits_fp32", DType::fp32, {c.tokens, local}, MemoryPart::logits);
    const int grad = b.buffer("dlogits", c.dtype, {c.tokens, local}, MemoryPart::logits);
    b.compute(Segment::loss, {softmax_, cast_, logits_}, {grad32}, {traffic(c, 8 * elements)});
    b.compute(Segment::loss, {grad32}, {grad}, {traffic(c, (4 + width) * elements)});
    return grad;
  }
  }
  return logits_;
}

void Head::backward(BlockBuilder& b, int residual_gradient, int grad_input) {
  const LayerContext& c = b.context();
  const std::int64_t h = c.model->hidden;
  int grad_logits = loss_backward(b);
  if (tanh_ >= 0) grad_logits = uncap_gradient(b, grad_logits);
  const int grad_norm = b.temporary("dfinal_norm", {c.tokens, h});
  const bool trains = !c.job->lora;
  const int gathered = trains ? tensor::enter_again(b, norm_.output, "final_norm", h) : -1;
  linear_input_gradient(b, head_, grad_logits, grad_norm);
  const int share = tensor::leave_backward_with(b, grad_norm, "final_norm", h, [&] {
    if (!trains) return;
    in_weight_pass(b, [&] {
      // The whole input gradient is still referenced while the weight gradient runs (Megatron-LM layers.py).
      Op& op = b.compute(Segment::head, {gathered, grad_logits, grad_norm}, {},
                         {gemm(c, c.tokens, head_.out, h, GemmRole::weight_gradient)});
      if (head_.weight >= 0) op.weight_gradients = {head_.weight};
      const Bytes gradient = sum_gradient(c, static_cast<double>(head_.out) * static_cast<double>(h), op);
      if (c.semantics->head_weight_gradient_copy) op.scratch = std::max(gradient, Bytes(head_.out * h * c.width));
    });
  });
  norm_backward(b, norm_, share, residual_gradient, grad_input);
}

} // namespace foretrain::layers
