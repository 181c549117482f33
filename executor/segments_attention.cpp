#include <algorithm>

#include "core/base/check.h"
#include "executor/kernels/latent.h"
#include "executor/segment_run.h"

namespace foretrain {
namespace {

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

/// Rows of one width inside a flat piece of memory.
at::Tensor rows_in(const at::Tensor& flat, std::int64_t offset, std::int64_t rows, std::int64_t width) {
  return flat.view(-1).narrow(0, offset, rows * width).view({rows, width});
}

} // namespace

void SegmentRun::rope() {
  const int tp = context_.plan->layout.tp;
  if (model_.latent) {
    const LatentAttention& mla = *model_.latent;
    const kernels::LatentShape shape{model_.heads / tp, mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim,
                                     context_.turns};
    if (forward())
      kernels_.latent_rope(read(0), read(1), read(2), shape, write(0), write(1), write(2));
    else
      kernels_.latent_rope_backward(read(0), read(1), read(2), shape, write(0), write(1), write(2));
    return;
  }
  // With norms of queries and keys these lie apart: what the norms made of them, and the gradients that they read.
  const kernels::RopeShape shape{model_.heads / tp, model_.kv_heads / tp, model_.head_dim, context_.turns};
  kernels::HeadRows parts = kernels::parts_of(forward() ? read(0) : write(0), shape);
  if (model_.qk_norm != QkNorm::none) {
    parts.q = forward() ? read(1) : write(1);
    parts.k = forward() ? read(2) : write(2);
  }
  if (forward())
    kernels_.rope(parts, shape, {write(0), write(1), write(2)});
  else
    kernels_.rope_backward({read(0), read(1), read(2)}, shape, parts);
}

/// Which columns a norm of queries ('q' begins its name) or keys is of.
kernels::HeadNormShape SegmentRun::head_norm_shape(const std::string& name) const {
  const std::int64_t tp = context_.plan->layout.tp;
  const std::int64_t width = model_.head_dim;
  const bool queries = name.front() == 'q';
  const std::int64_t heads = queries ? model_.heads : model_.kv_heads;
  const bool over_all = model_.qk_norm == QkNorm::full_width;
  kernels::HeadNormShape shape;
  shape.first = queries ? 0 : model_.heads / tp * width;
  shape.columns = heads / tp * width;
  shape.group = over_all ? shape.columns : width;
  shape.whole = over_all ? heads * width : width;
  return shape;
}

/// Of queries or keys. Where tp splits the heads of a norm over all of them, an op before each of forward and backward
/// makes this rank's sums, which an all-reduce adds up.
void SegmentRun::head_norm() {
  const bool over_ranks = model_.qk_norm == QkNorm::full_width && context_.plan->layout.tp > 1;
  const std::string written = base_name(buffer_name(op_.writes.front()));
  if (op_.weights.empty()) return kernels_.head_squares(read(0), head_norm_shape(written), write(0));
  ParameterEntry& scale = parameter(op_.weights[0]);
  ParameterEntry* bias = op_.weights.size() > 1 ? &parameter(op_.weights[1]) : nullptr;
  const kernels::HeadNormShape shape = head_norm_shape(base_name(scale.spec->name));
  if (forward())
    return kernels_.head_norm(read(0), scale.weight, bias ? &bias->weight : nullptr, over_ranks ? &read(1) : nullptr,
                              shape, write(0), write(1), write(2));
  if (op_.reads.size() == 2) return kernels_.head_products(read(0), scale.weight, read(1), write(0));
  kernels_.head_norm_backward(read(0), read(1), scale.weight, read(2), over_ranks ? &read(4) : nullptr, shape, write(0),
                              scale.gradient, bias ? &bias->gradient : nullptr);
}

/// Against the keys of a context-parallel rank. With Ulysses a rank has all tokens and some of the heads.
kernels::AttentionShape SegmentRun::attention_shape(std::int64_t member) const {
  const Layout& layout = context_.plan->layout;
  const bool exchanged = layout.cp > 1 && layout.context_parallel.kind == ContextKind::ulysses;
  const int split = layout.tp * (exchanged ? layout.cp : 1);
  kernels::AttentionShape shape;
  shape.query = model_.heads / split;
  shape.kv = (model_.latent ? model_.heads : model_.kv_heads) / split;
  if (state_.layer >= 0 && model_.window)
    shape.window = state_.block->kind == BlockKind::mtp
                       ? mtp_shape(model_).window
                       : layer_shapes(model_)[static_cast<std::size_t>(state_.layer + layer_inside())].window;
  if (exchanged) {
    for (const std::vector<std::int64_t>& piece : *context_.positions)
      shape.query_positions.insert(shape.query_positions.end(), piece.begin(), piece.end());
    shape.key_positions = shape.query_positions;
    return shape;
  }
  shape.query_positions = (*context_.positions)[static_cast<std::size_t>(context_.cp_index)];
  shape.key_positions = (*context_.positions)[static_cast<std::size_t>(member)];
  return shape;
}

/// Keys and values that came over the network lie one after another, [K | V] for each rank that they came from.
std::vector<SegmentRun::KeyPart> SegmentRun::key_parts(const Tensor& keys, const Tensor& gradients,
                                                       const std::string& name) const {
  const std::int64_t ranks = context_.plan->layout.cp;
  const std::int64_t tp = context_.plan->layout.tp;
  const std::int64_t heads = (model_.latent ? model_.heads : model_.kv_heads) / tp;
  const std::int64_t k_width =
      heads * (model_.latent ? model_.latent->qk_nope_head_dim + model_.latent->qk_rope_head_dim : model_.head_dim);
  const std::int64_t v_width = heads * (model_.latent ? model_.latent->v_head_dim : model_.head_dim);
  const std::int64_t rows = context_.tokens;
  std::int64_t member = 0;
  std::int64_t count = ranks;         // all of them
  if (starts_with(name, "kv.step")) { // what has travelled so many hops
    const std::int64_t hops = std::stoi(name.substr(7));
    member = (context_.cp_index - hops + ranks) % ranks;
    count = 1;
  }
  std::vector<KeyPart> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t offset = i * rows * (k_width + v_width);
    KeyPart part;
    part.member = member + i;
    part.k = rows_in(keys, offset, rows, k_width);
    part.v = rows_in(keys, offset + rows * k_width, rows, v_width);
    if (gradients.defined()) {
      part.dk = rows_in(gradients, offset, rows, k_width);
      part.dv = rows_in(gradients, offset + rows * k_width, rows, v_width);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void SegmentRun::attention() {
  if (op_.kernels.size() == 1 && op_.kernels.front().kind == KernelKind::memory) { // gradients that met on their way
    write(0).add_(read(0));
    return;
  }
  if (forward())
    attention_forward();
  else
    attention_backward();
}

/// Reads q, k and v in some order, or q and keys that came over the network; after the first part also what it writes.
void SegmentRun::attention_forward() {
  Tensor q;
  std::vector<KeyPart> parts;
  Tensor k;
  for (const int index : op_.reads) {
    const std::string name = base_name(buffer_name(index));
    if (name == "q") q = buffer(index);
    if (name == "k") k = buffer(index);
    if (name == "v") parts.push_back({k, buffer(index), {}, {}, context_.cp_index});
    if (starts_with(name, "kv.")) parts = key_parts(buffer(index), {}, name);
  }
  FORETRAIN_CHECK(q.defined() && !parts.empty(), "attention reads queries and keys");
  const bool merges = std::find(op_.reads.begin(), op_.reads.end(), op_.writes.front()) != op_.reads.end();
  if (!merges) kernels::attention_start(write(0), write(1));
  for (const KeyPart& part : parts)
    kernels_.attention({q, part.k, part.v}, attention_shape(part.member), write(0), write(1));
}

/// Reads q, output, log-sum-exp, gradient of the output, then keys; after the first part of a ring also dq.
void SegmentRun::attention_backward() {
  const bool whole = op_.writes.size() == 3;
  std::vector<KeyPart> parts;
  const std::string name = base_name(buffer_name(op_.reads[4]));
  if (!whole) write(1).zero_();
  if (starts_with(name, "kv."))
    parts = key_parts(read(4), write(1), name);
  else if (whole)
    parts = {{read(4), read(5), write(1), write(2), context_.cp_index}};
  else { // the ring's first step: one's own keys
    const std::int64_t rows = read(4).size(0);
    parts = {{read(4), read(5), rows_in(write(1), 0, rows, read(4).size(1)),
              rows_in(write(1), read(4).numel(), rows, read(5).size(1)), context_.cp_index}};
  }
  const bool adds = std::find(op_.reads.begin(), op_.reads.end(), op_.writes.front()) != op_.reads.end();
  if (!adds) write(0).zero_();
  if (whole) {
    write(1).zero_();
    write(2).zero_();
  }
  for (KeyPart& part : parts)
    kernels_.attention_backward({read(0), part.k, part.v}, {read(1), read(2), read(3)}, attention_shape(part.member),
                                write(0), part.dk, part.dv);
}

} // namespace foretrain
