#include "core/program/axes/tensor.h"
#include "core/program/layers/dropout.h"
#include "core/program/layers/feed_forward.h"
#include "core/program/layers/norm.h"

namespace foretrain::layers {

Mlp declare_mlp(BlockBuilder& b, const std::string& name, std::int64_t ffn, Segment up, Segment activation,
                Segment down) {
  const LayerContext& c = b.context();
  const std::int64_t h = c.model->hidden;
  const std::int64_t matrices = c.model->gated ? 2 : 1;
  const std::int64_t local = ffn / c.layout.tp;
  Mlp mlp;
  mlp.activation = activation;
  mlp.width = local;
  mlp.up = {up, b.parameter({name + "_up", {matrices * ffn, h}, {matrices * local, h}, false, false}), c.tokens, h,
            matrices * local};
  mlp.down = {down, b.parameter({name + "_down", {h, ffn}, {h, local}, false, false}), c.tokens, local, h};
  if (c.model->mlp_bias) {
    b.parameter({name + "_up.bias", {matrices * ffn}, {matrices * local}, false, false});
    b.parameter({name + "_down.bias", {h}, {h}, false, true});
  }
  mlp.up_out = b.activation(name + "_up", {c.tokens, matrices * local});
  mlp.hidden = b.activation(name + "_hidden", {c.tokens, local});
  return mlp;
}

void mlp_activation(BlockBuilder& b, const Mlp& mlp) {
  const LayerContext& c = b.context();
  const double moved = static_cast<double>(c.width * c.tokens) * static_cast<double>(mlp.up.out + mlp.width);
  b.compute(mlp.activation, {mlp.up_out}, {mlp.hidden}, {traffic(c, moved)});
}

void mlp_forward(BlockBuilder& b, const Mlp& mlp, int gathered, int partial) {
  linear_forward(b, mlp.up, gathered, mlp.up_out);
  mlp_activation(b, mlp);
  linear_forward(b, mlp.down, mlp.hidden, partial);
}

int mlp_backward(BlockBuilder& b, const Mlp& mlp, int grad_partial, int grad_gathered, const std::string& name) {
  const LayerContext& c = b.context();
  const int grad_hidden = b.temporary("d" + name + "_hidden", {c.tokens, mlp.width});
  linear_input_gradient(b, mlp.down, grad_partial, grad_hidden);
  if (recomputes(c, RecomputeModule::activation)) recomputed(b, [&] { mlp_activation(b, mlp); });
  linear_weight_gradient(b, mlp.down, mlp.hidden, grad_partial);
  const int grad_up = b.temporary("d" + name + "_up", {c.tokens, mlp.up.out});
  const double moved = static_cast<double>(c.width * c.tokens) * static_cast<double>(2 * mlp.up.out + mlp.width);
  b.compute(mlp.activation, {mlp.up_out, grad_hidden}, {grad_up}, {traffic(c, moved)});
  linear_input_gradient(b, mlp.up, grad_up, grad_gathered);
  return grad_up;
}

namespace {

/// norm → up → activation → down → residual.
class Dense final : public FeedForwardBlock {
public:
  void forward(BlockBuilder& b, int input, int sum) override {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    norm_ = declare_norm(b, input, "norm2");
    mlp_ = declare_mlp(b, "ffn", c.model->ffn, Segment::ffn_up, Segment::activation, Segment::ffn_down);
    partial_ = b.temporary("ffn_down", {c.tokens, h});
    emit(b);
    const int share = tensor::leave(b, partial_, "ffn_down", h);
    dropout_ = declare_dropout(b, "ffn_down");
    b.compute(Segment::residual, {input, share}, with_mask(sum, dropout_),
              {traffic(c, 3.0 * static_cast<double>(c.width * c.tokens_sp) * static_cast<double>(h))});
  }

  void backward(BlockBuilder& b, int grad, int grad_input) override {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    if (recomputes(c, RecomputeModule::mlp)) recomputed(b, [&] { emit(b); });
    const int grad_out = tensor::enter_backward(b, dropout_backward(b, dropout_, grad, "ffn_down"), "ffn_down", h);
    const int grad_norm = b.temporary("dnorm2", {c.tokens, h});
    const int grad_up = mlp_backward(b, mlp_, grad_out, grad_norm, "ffn");
    if (recomputes(c, RecomputeModule::layernorm)) recomputed(b, [&] { norm_forward(b, norm_); });
    const int gathered = tensor::enter(b, norm_.output, "norm2", h);
    const int share = tensor::leave_backward(b, grad_norm, "norm2", h);
    linear_weight_gradient(b, mlp_.up, gathered, grad_up);
    norm_backward(b, norm_, share, grad, grad_input);
  }

private:
  void emit(BlockBuilder& b) {
    norm_forward(b, norm_);
    const int gathered = tensor::enter(b, norm_.output, "norm2", b.context().model->hidden);
    mlp_forward(b, mlp_, gathered, partial_);
  }

  Norm norm_;
  Dropout dropout_;
  Mlp mlp_;
  int partial_ = -1;
};

} // namespace

std::unique_ptr<FeedForwardBlock> make_dense() {
  return std::make_unique<Dense>();
}

} // namespace foretrain::layers
