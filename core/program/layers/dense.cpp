#include "core/program/axes/tensor.h"
#include "core/program/layers/feed_forward.h"
#include "core/program/layers/linear.h"
#include "core/program/layers/norm.h"

namespace foretrain::layers {

Mlp declare_mlp(BlockBuilder& b, const std::string& name, std::int64_t ffn, Segment up, Segment activation,
                Segment down, bool adapters) {
  const LayerContext& c = b.context();
  const std::int64_t h = c.model->hidden;
  const std::int64_t matrices = c.model->gated ? 2 : 1;
  const std::int64_t local = ffn / c.layout.tp;
  Mlp mlp;
  mlp.activation = activation;
  mlp.width = local;
  const auto target = [adapters](AdapterTarget t) { return adapters ? std::optional(t) : std::nullopt; };
  mlp.up = declare_linear(b, up, {name + "_up", {matrices * ffn, h}, {matrices * local, h}}, c.tokens, Split::columns,
                          target(AdapterTarget::ffn_up));
  mlp.down = declare_linear(b, down, {name + "_down", {h, ffn}, {h, local}}, c.tokens, Split::rows,
                            target(AdapterTarget::ffn_down));
  if (c.model->mlp_bias) {
    b.parameter({name + "_up.bias", {matrices * ffn}, {matrices * local}, false, false});
    b.parameter({name + "_down.bias", {h}, {h}, false, true});
  }
  mlp.up_out = b.activation(name + "_up", {c.tokens, matrices * local});
  mlp.hidden = b.activation(name + "_hidden", {c.tokens, local});
  mlp.kept = kept_buffer(b, mlp.down, mlp.hidden, false);
  if (c.model->gated && eager_operators(c)) mlp.gate = b.activation(name + "_gate", {c.tokens, local});
  return mlp;
}

void mlp_activation(BlockBuilder& b, const Mlp& mlp) {
  const LayerContext& c = b.context();
  // In eager operators silu reads and writes the gate, and the product reads both halves and writes.
  const std::int64_t values = mlp.gate >= 0 ? 5 * mlp.width : mlp.up.out + mlp.width;
  const double moved = static_cast<double>(c.width * c.tokens) * static_cast<double>(values);
  std::vector<int> writes = {mlp.hidden};
  if (mlp.gate >= 0) writes.push_back(mlp.gate);
  b.compute(mlp.activation, {mlp.up_out}, std::move(writes), {traffic(c, moved)});
  keep(b, mlp.down, mlp.hidden, mlp.kept);
}

int mlp_forward(BlockBuilder& b, const Mlp& mlp, const tensor::Entry& entry, int partial, const std::string& down) {
  const LayerContext& c = b.context();
  std::int64_t kept = 0;
  if (keeps_output(c, KeptOutput::gate) && c.model->gated) kept += mlp.width;
  if (keeps_output(c, KeptOutput::up)) kept += mlp.width;
  column_forward(b, mlp.up, entry, mlp.up_out, kept);
  mlp_activation(b, mlp);
  const bool again = b.pass() == Pass::recompute && c.layout.recompute.kind == RecomputeKind::operators;
  // Recomputation ends with the last tensor that the backward reads, which comes before the down projection.
  const int out =
      keeps_output(c, KeptOutput::down) ? b.activation(b.at(partial).name + ".kept", b.at(partial).shape) : -1;
  if (again) {
    if (out >= 0) b.compute(mlp.down.segment, {out}, {}, {});
    return -1;
  }
  if (out < 0 && !down.empty()) return row_forward(b, mlp.down, mlp.kept, partial, down);
  linear_forward(b, mlp.down, mlp.kept, partial);
  if (out >= 0) b.compute(mlp.down.segment, {partial}, {out}, {});
  return down.empty() ? -1 : tensor::leave(b, partial, down, mlp.down.out);
}

int mlp_backward(BlockBuilder& b, const Mlp& mlp, const tensor::Entry& entry, int grad_gathered,
                 const std::string& name) {
  const LayerContext& c = b.context();
  const int grad_partial = entry.whole;
  const int grad_hidden = b.temporary("d" + name + "_hidden", {c.tokens, mlp.width});
  row_input_gradient(b, mlp.down, entry, grad_hidden);
  if (needs_input(b, mlp.down) && recomputes(c, RecomputeModule::activation))
    recomputed(b, [&] { mlp_activation(b, mlp); });
  linear_weight_gradient(b, mlp.down, mlp.kept, grad_partial);
  const int grad_up = b.temporary("d" + name + "_up", {c.tokens, mlp.up.out});
  // Eager: two gradients of the product and one of silu, two values read and one written each.
  const std::int64_t values = mlp.gate >= 0 ? 9 * mlp.width : 2 * mlp.up.out + mlp.width;
  const double moved = static_cast<double>(c.width * c.tokens) * static_cast<double>(values);
  std::vector<int> reads = {mlp.up_out, grad_hidden};
  if (mlp.gate >= 0) reads.push_back(mlp.gate);
  b.compute(mlp.activation, std::move(reads), {grad_up}, {traffic(c, moved)});
  linear_input_gradient(b, mlp.up, grad_up, grad_gathered);
  return grad_up;
}

namespace {

/// norm → up → activation → down.
class Dense final : public Half {
public:
  explicit Dense(bool reduces) : reduces_(reduces) {}

  [[nodiscard]] std::string_view name() const override { return "ffn_down"; }
  [[nodiscard]] bool takes_quantised(const LayerContext& c) const override {
    return quantises_norm(c, AdapterTarget::ffn_up);
  }

  std::vector<int> forward(BlockBuilder& b, const Norm& norm) override {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    norm_ = norm;
    mlp_ = declare_mlp(b, "ffn", c.model->ffn, Segment::ffn_up, Segment::activation, Segment::ffn_down, true);
    partial_ = b.temporary("ffn_down", {c.tokens, h});
    lead(b, norm_);
    const int share = emit(b, reduces_ ? "ffn_down" : "");
    if (b.pass() == Pass::recompute && c.layout.recompute.kind == RecomputeKind::operators) return {};
    return {reduces_ ? share : partial_};
  }

  int backward(BlockBuilder& b, int grad) override {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    if (recomputes(c, RecomputeModule::mlp)) {
      repeat(b, norm_);
      recomputed(b, [&] { emit(b, ""); });
    }
    const tensor::Entry entry =
        reduces_ ? begin_row_backward(b, mlp_.down, grad, "ffn_down") : tensor::Entry{grad, grad, false};
    const int grad_norm = b.temporary("dnorm2", {c.tokens, h});
    const int grad_up = mlp_backward(b, mlp_, entry, grad_norm, "ffn");
    if (mlp_.gate >= 0 && c.semantics->family == SemanticsFamily::megatron) reduce_gate_apart(b, grad_norm);
    const bool reads_norm = needs_input(b, mlp_.up);
    if (reads_norm && recomputes(c, RecomputeModule::layernorm)) repeat(b, norm_);
    const int gathered = reads_norm ? tensor::enter_again(b, norm_.output, "norm2", h) : -1;
    return tensor::leave_backward_with(b, grad_norm, "norm2", h,
                                       [&] { linear_weight_gradient(b, mlp_.up, gathered, grad_up); });
  }

private:
  int emit(BlockBuilder& b, const std::string& exit) {
    return mlp_forward(b, mlp_, begin_column(b, mlp_.up, norm_.output, "norm2"), partial_, exit);
  }

  /// Gate and up as linear layers of their own: each reduces the gradient of its input, and autograd sums both
  /// (Aleph-Alpha/scaling@78489292b core/nn/mlp.py ParallelSwiGLUMLP, core/nn/linear/utils.py
  /// _CopyToModelParallelRegion; under sequence parallelism the sum is reduced, once, behind the norm).
  static void reduce_gate_apart(BlockBuilder& b, int grad_norm) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    if (!c.sp) tensor::leave_backward(b, grad_norm, "norm2.gate", h);
    b.compute(Segment::residual, {grad_norm}, {grad_norm},
              {traffic(c, 3.0 * static_cast<double>(c.width * c.tokens * h))});
  }

  bool reduces_;
  Norm norm_;
  Mlp mlp_;
  int partial_ = -1;
};

} // namespace

std::unique_ptr<Half> make_dense(bool reduces) {
  return std::make_unique<Dense>(reduces);
}

} // namespace foretrain::layers
