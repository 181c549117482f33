#include "executor/segments.h"

#include <algorithm>

#include "core/base/check.h"
#include "executor/kernels/tensor_kernels.h"
#include "executor/segment_run.h"

namespace foretrain {

using at::Tensor;

ParameterEntry* SegmentRun::named(const std::string& name) const {
  const std::vector<Parameter>& list = state_.block->parameters;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return &parameter(static_cast<int>(i));
  return nullptr;
}

ParameterEntry& SegmentRun::weight() const {
  const std::vector<int>& list = op_.pass == Pass::weight ? op_.weight_gradients : op_.weights;
  if (!list.empty()) return parameter(list.front());
  return op_.segment == Segment::head ? parameters_.output_table() : parameters_.table();
}

Tensor SegmentRun::own_rows(const Tensor& whole) const {
  if (!context_.sequence_parallel) return whole;
  const std::int64_t rows = context_.tokens / context_.plan->layout.tp;
  return whole.narrow(0, context_.tp_index * rows, rows);
}

/// In their sequences, of this rank's tokens.
Tensor SegmentRun::positions() const {
  const std::vector<std::int64_t>& own = (*context_.positions)[static_cast<std::size_t>(context_.cp_index)];
  std::vector<std::int64_t> rows(static_cast<std::size_t>(context_.tokens));
  for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = own[row % own.size()];
  return kernels::tensors::placed(rows, context_.ids.device());
}

int SegmentRun::layer_inside() const {
  const std::string& name = buffer_name(op_.writes.empty() ? op_.reads.front() : op_.writes.front());
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos || state_.block->layers == 1) return 0;
  return std::stoi(name.substr(0, slash));
}

kernels::Vocabulary SegmentRun::vocabulary(std::int64_t columns) const {
  const std::int64_t first = columns * context_.tp_index;
  return {first, std::clamp<std::int64_t>(model_.vocab - first, 0, columns)};
}

void SegmentRun::embedding() {
  ParameterEntry* positional = named("positions");
  const Tensor& ids =
      predicts_later() ? context_.targets : context_.ids; // the next token beside its forerunner's state
  if (!forward()) {
    ParameterEntry& table = weight();
    kernels_.embedding_weight_gradient(ids, read(0), table.spec->local[0] * context_.tp_index, table.gradient);
    // Under sequence parallelism each rank adds its rows only: the sum over tp follows at the end of the step.
    if (positional)
      kernels_.embedding_weight_gradient(own_rows(positions()), own_rows(read(0)), 0, positional->gradient);
    return;
  }
  if (op_.reads.empty()) {
    ParameterEntry& table = weight();
    kernels_.embedding(ids, table.weight, table.spec->local[0] * context_.tp_index, write(0));
    return;
  }
  write(0).copy_(read(0));
  if (positional) kernels_.add_rows(own_rows(positions()), positional->weight, write(0));
}

/// An op of a norm of queries or keys; the sums of squares have no weights.
bool SegmentRun::norms_heads() const {
  if (model_.qk_norm == QkNorm::none) return false;
  if (op_.weights.empty()) return true;
  const std::string name = base_name(parameter(op_.weights[0]).spec->name);
  return name == "q_norm" || name == "k_norm";
}

void SegmentRun::norm() {
  if (norms_heads()) return head_norm();
  ParameterEntry& scale = parameter(op_.weights[0]);
  const std::string name = base_name(scale.spec->name);
  if (name == "q_norm" || name == "kv_norm") { // of latent attention: nothing is saved
    if (forward())
      kernels_.latent_norm(read(0), scale.weight, write(0));
    else
      kernels_.latent_norm_backward(read(0), scale.weight, read(1), op_.reads.size() > 2 ? &read(2) : nullptr, write(0),
                                    scale.gradient);
    return;
  }
  ParameterEntry* bias = op_.weights.size() > 1 ? &parameter(op_.weights[1]) : nullptr;
  if (!forward() && (name == "norm_hidden" || name == "norm_embedded")) { // one half of the joined rows
    const std::int64_t width = read(0).size(1);
    const Tensor half = read(2).narrow(1, name == "norm_hidden" ? 0 : width, width);
    kernels_.norm_backward(read(0), read(1), scale.weight, half, op_.reads.size() > 3 ? &read(3) : nullptr, write(0),
                           scale.gradient, bias ? &bias->gradient : nullptr);
    return;
  }
  if (forward()) {
    kernels_.norm(read(0), scale.weight, bias ? &bias->weight : nullptr, write(0), write(1));
    return;
  }
  kernels_.norm_backward(read(0), read(1), scale.weight, read(2), op_.reads.size() > 3 ? &read(3) : nullptr, write(0),
                         scale.gradient, bias ? &bias->gradient : nullptr);
}

/// A bias of a column-split layer goes with the product; that of a row-split one must be added once, after the sum over
/// ranks, so the residual op adds it.
void SegmentRun::linear() {
  ParameterEntry& entry = weight();
  const bool row_split =
      op_.segment == Segment::attention_out || op_.segment == Segment::ffn_down || op_.segment == Segment::shared_down;
  ParameterEntry* bias = op_.segment == Segment::head ? nullptr : named(entry.spec->name + ".bias");
  if (forward()) {
    kernels::linear(read(0), entry.weight, bias && !row_split ? &bias->weight : nullptr, write(0));
  } else if (op_.pass == Pass::input) {
    kernels::linear_input_gradient(read(0), entry.weight, write(0));
  } else {
    kernels_.linear_weight_gradient(read(0), read(1), entry.gradient, bias && !row_split ? &bias->gradient : nullptr);
    if (bias && row_split) kernels_.add_bias_gradient(own_rows(read(1)), bias->gradient);
  }
}

/// Of multi-token prediction: the state and the next token's embedding side by side, then a product.
void SegmentRun::projection() {
  if (!forward() || op_.reads.size() == 1) return linear();
  const std::int64_t width = read(0).size(1);
  write(0).narrow(1, 0, width).copy_(read(0));
  write(0).narrow(1, width, width).copy_(read(1));
}

void SegmentRun::activation() {
  if (forward())
    kernels::activation(read(0), model_.gated, write(0));
  else
    kernels_.activation_backward(read(0), read(1), model_.gated, write(0));
}

/// The sum of what it reads; the biases of row-split layers are added here, once.
void SegmentRun::residual() {
  if (op_.reads.size() == 1)
    write(0).copy_(read(0));
  else
    at::add_out(write(0), read(0), read(1));
  for (std::size_t i = 2; i < op_.reads.size(); ++i) write(0).add_(read(i));
  if (!forward()) return;
  for (std::size_t i = 1; i < op_.reads.size(); ++i) {
    std::string name = buffer_name(op_.reads[i]);
    if (const std::size_t end = name.rfind(".share"); end != std::string::npos) name.resize(end);
    if (const ParameterEntry* bias = named(name + ".bias")) write(0).add_(bias->weight);
  }
}

void SegmentRun::loss() {
  const std::string what = base_name(buffer_name(op_.writes.front()));
  const Tensor& targets = predicts_later() ? context_.mtp_targets : context_.targets;
  kernels::LossSum& loss = predicts_later() ? context_.mtp_loss : context_.loss;
  const double scale = context_.loss_scale * (predicts_later() ? kMtpLossWeight : 1);
  Tensor& logits = read(0);
  const kernels::Vocabulary part = vocabulary(logits.size(-1));
  if (what == "loss.maximum") {
    kernels_.loss_maximum(logits, part, write(0));
  } else if (what == "loss.sums") {
    kernels_.loss_sums(logits, read(1), targets, part, write(0));
  } else if (op_.reads.size() > 1) {
    kernels_.loss_gradient(logits, read(2), read(1), targets, part, scale, loss);
  } else { // the whole vocabulary is here
    const at::ScalarType type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Tensor maximum = at::empty({context_.tokens}, logits.options().dtype(type));
    Tensor sums = at::empty({2, context_.tokens}, logits.options().dtype(type));
    kernels_.loss_maximum(logits, part, maximum);
    kernels_.loss_sums(logits, maximum, targets, part, sums);
    kernels_.loss_gradient(logits, maximum, sums, targets, part, scale, loss);
  }
}

void run_segment(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context) {
  SegmentRun run(op, state, parameters, context);
  switch (op.segment) {
  case Segment::embedding:
    return run.embedding();
  case Segment::norm:
    return run.norm();
  case Segment::qkv:
  case Segment::attention_out:
  case Segment::mla_down:
  case Segment::mla_up:
  case Segment::ffn_up:
  case Segment::ffn_down:
  case Segment::shared_up:
  case Segment::shared_down:
  case Segment::head:
    return run.linear();
  case Segment::rope:
    return run.rope();
  case Segment::mtp_projection:
    return run.projection();
  case Segment::attention:
    return run.attention();
  case Segment::activation:
  case Segment::shared_activation:
    return run.activation();
  case Segment::router:
    return run.router();
  case Segment::permute:
    return run.permute();
  case Segment::unpermute:
    return run.unpermute();
  case Segment::expert_up:
  case Segment::expert_down:
    return run.expert_linear();
  case Segment::expert_activation:
    return run.expert_activation();
  case Segment::residual:
    return run.residual();
  case Segment::loss:
    return run.loss();
  case Segment::none:
  case Segment::optimizer:
  case Segment::zero_gradients:
  case Segment::gradient_norm:
  case Segment::linear_mixer:
    break;
  }
  FORETRAIN_CHECK(false, "check_runnable admits only segments with code");
}

} // namespace foretrain
