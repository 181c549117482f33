#include "executor/segments.h"

#include <algorithm>

#include "core/base/check.h"
#include "executor/kernels/kernels.h"
#include "executor/slices.h"

namespace foretrain {
namespace {

using at::Tensor;

/// One op on its buffers, read and written by place in the op's lists.
class SegmentRun {
public:
  SegmentRun(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context)
      : op_(op), state_(state), parameters_(parameters), context_(context), model_(context.plan->model) {}

  void embedding();
  void norm();
  void linear();
  void rope();
  void attention();
  void activation();
  void residual();
  void loss();

private:
  [[nodiscard]] bool forward() const { return op_.pass == Pass::forward || op_.pass == Pass::recompute; }
  [[nodiscard]] Tensor& buffer(int index) const { return state_.buffers[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Tensor& read(std::size_t i) const { return buffer(op_.reads[i]); }
  [[nodiscard]] Tensor& write(std::size_t i) const { return buffer(op_.writes[i]); }
  [[nodiscard]] const std::string& buffer_name(int index) const {
    return state_.block->buffers[static_cast<std::size_t>(index)].name;
  }
  [[nodiscard]] ParameterEntry& parameter(int index) const {
    return parameters_.at(state_.chunk, state_.position, index);
  }
  /// Parameter of the block by name, or null.
  [[nodiscard]] ParameterEntry* named(const std::string& name) const {
    const std::vector<Parameter>& list = state_.block->parameters;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].name == name) return &parameter(static_cast<int>(i));
    return nullptr;
  }
  /// The one weight of a linear op; a head without its own reads the embedding's table.
  [[nodiscard]] ParameterEntry& weight() const {
    const std::vector<int>& list = op_.pass == Pass::weight ? op_.weight_gradients : op_.weights;
    return list.empty() ? parameters_.table() : parameter(list.front());
  }
  /// Rows of the whole micro-batch that this rank holds where the sequence is split.
  [[nodiscard]] Tensor own_rows(const Tensor& whole) const {
    if (!context_.sequence_parallel) return whole;
    const std::int64_t rows = context_.tokens / context_.plan->layout.tp;
    return whole.narrow(0, context_.tp_index * rows, rows);
  }
  [[nodiscard]] Tensor positions() const {
    return at::arange(context_.tokens, at::kLong).remainder(context_.plan->job.sequence_length);
  }
  [[nodiscard]] kernels::Heads heads() const;
  [[nodiscard]] kernels::Vocabulary vocabulary(std::int64_t columns) const;

  const Op& op_;
  BlockState& state_;
  ParameterTable& parameters_;
  SegmentContext& context_;
  const ModelSpec& model_;
};

kernels::Heads SegmentRun::heads() const {
  const int tp = context_.plan->layout.tp;
  kernels::Heads heads{context_.plan->job.sequence_length, model_.heads / tp, model_.kv_heads / tp, model_.head_dim, 0};
  if (state_.layer >= 0 && model_.window) {
    const std::string& name = buffer_name(op_.writes.front());
    const std::size_t slash = name.rfind('/');
    const int inside = slash == std::string::npos ? 0 : std::stoi(name.substr(0, slash));
    heads.window = layer_shapes(model_)[static_cast<std::size_t>(state_.layer + inside)].window;
  }
  return heads;
}

kernels::Vocabulary SegmentRun::vocabulary(std::int64_t columns) const {
  const std::int64_t first = columns * context_.tp_index;
  return {first, std::clamp<std::int64_t>(model_.vocab - first, 0, columns)};
}

void SegmentRun::embedding() {
  ParameterEntry* positional = named("positions");
  if (!forward()) {
    ParameterEntry& table = weight();
    kernels::embedding_weight_gradient(context_.ids, read(0), table.spec->local[0] * context_.tp_index, table.gradient);
    // Under sequence parallelism each rank adds its rows only: the sum over tp follows at the end of the step.
    if (positional) positional->gradient.index_add_(0, own_rows(positions()), own_rows(read(0)));
    return;
  }
  if (op_.reads.empty()) {
    ParameterEntry& table = weight();
    kernels::embedding(context_.ids, table.weight, table.spec->local[0] * context_.tp_index, write(0));
    return;
  }
  write(0).copy_(read(0));
  if (positional) write(0).add_(positional->weight.index_select(0, own_rows(positions())));
}

void SegmentRun::norm() {
  ParameterEntry& scale = parameter(op_.weights[0]);
  ParameterEntry* bias = op_.weights.size() > 1 ? &parameter(op_.weights[1]) : nullptr;
  if (forward()) {
    kernels::norm(read(0), scale.weight, bias ? &bias->weight : nullptr, write(0), write(1));
    return;
  }
  kernels::norm_backward(read(0), read(1), scale.weight, read(2), op_.reads.size() > 3 ? &read(3) : nullptr, write(0),
                         scale.gradient, bias ? &bias->gradient : nullptr);
}

/// A bias of a column-split layer goes with the product; that of a row-split one must be added once, after the sum over
/// ranks, so the residual op adds it.
void SegmentRun::linear() {
  ParameterEntry& entry = weight();
  const bool row_split = op_.segment == Segment::attention_out || op_.segment == Segment::ffn_down;
  ParameterEntry* bias = op_.segment == Segment::head ? nullptr : named(entry.spec->name + ".bias");
  if (forward()) {
    kernels::linear(read(0), entry.weight, bias && !row_split ? &bias->weight : nullptr, write(0));
  } else if (op_.pass == Pass::input) {
    kernels::linear_input_gradient(read(0), entry.weight, write(0));
  } else {
    kernels::linear_weight_gradient(read(0), read(1), entry.gradient, bias && !row_split ? &bias->gradient : nullptr);
    if (bias && row_split) bias->gradient.add_(own_rows(read(1)).sum(0));
  }
}

void SegmentRun::rope() {
  const bool rotary = model_.learned_positions == 0;
  if (forward())
    kernels::rope(read(0), heads(), rotary, write(0), write(1), write(2));
  else
    kernels::rope_backward(read(0), read(1), read(2), heads(), rotary, write(0));
}

void SegmentRun::attention() {
  if (forward())
    kernels::attention(read(0), read(1), read(2), heads(), write(0), write(1));
  else // reads q, output, log-sum-exp, gradient of the output, k, v
    kernels::attention_backward(read(0), read(4), read(5), read(1), read(2), read(3), heads(), write(0), write(1),
                                write(2));
}

void SegmentRun::activation() {
  if (forward())
    kernels::activation(read(0), model_.gated, write(0));
  else
    kernels::activation_backward(read(0), read(1), model_.gated, write(0));
}

void SegmentRun::residual() {
  at::add_out(write(0), read(0), read(1));
  std::string name = buffer_name(op_.reads[1]);
  if (const std::size_t end = name.rfind(".share"); end != std::string::npos) name.resize(end);
  if (const ParameterEntry* bias = named(name + ".bias")) write(0).add_(bias->weight);
}

void SegmentRun::loss() {
  const std::string& what = buffer_name(op_.writes.front());
  Tensor& logits = read(0);
  const kernels::Vocabulary part = vocabulary(logits.size(-1));
  if (what == "loss.maximum") {
    kernels::loss_maximum(logits, part, write(0));
  } else if (what == "loss.sums") {
    kernels::loss_sums(logits, read(1), context_.targets, part, write(0));
  } else if (op_.reads.size() > 1) {
    context_.loss += kernels::loss_gradient(logits, read(2), read(1), context_.targets, part, context_.loss_scale);
  } else { // the whole vocabulary is here
    Tensor maximum = at::empty({context_.tokens}, logits.options());
    Tensor sums = at::empty({2, context_.tokens}, logits.options());
    kernels::loss_maximum(logits, part, maximum);
    kernels::loss_sums(logits, maximum, context_.targets, part, sums);
    context_.loss += kernels::loss_gradient(logits, maximum, sums, context_.targets, part, context_.loss_scale);
  }
}

} // namespace

void run_segment(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context) {
  SegmentRun run(op, state, parameters, context);
  switch (op.segment) {
  case Segment::embedding:
    return run.embedding();
  case Segment::norm:
    return run.norm();
  case Segment::qkv:
  case Segment::attention_out:
  case Segment::ffn_up:
  case Segment::ffn_down:
  case Segment::head:
    return run.linear();
  case Segment::rope:
    return run.rope();
  case Segment::attention:
    return run.attention();
  case Segment::activation:
    return run.activation();
  case Segment::residual:
    return run.residual();
  case Segment::loss:
    return run.loss();
  case Segment::none:
  case Segment::mla_down:
  case Segment::mla_up:
  case Segment::router:
  case Segment::permute:
  case Segment::expert_up:
  case Segment::expert_activation:
  case Segment::expert_down:
  case Segment::unpermute:
  case Segment::shared_up:
  case Segment::shared_activation:
  case Segment::shared_down:
  case Segment::mtp_projection:
  case Segment::optimizer:
  case Segment::zero_gradients:
  case Segment::gradient_norm:
  case Segment::linear_mixer:
    break;
  }
  FORETRAIN_CHECK(false, "check_runnable admits only segments with code");
}

} // namespace foretrain
