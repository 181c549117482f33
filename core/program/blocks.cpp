#include "core/program/blocks.h"

#include <memory>
#include <string>

#include "core/base/check.h"
#include "core/program/axes/tensor.h"
#include "core/program/layers/attention.h"
#include "core/program/layers/ends.h"
#include "core/program/layers/feed_forward.h"
#include "core/program/layers/layer.h"

namespace foretrain {
namespace {

using namespace layers;

Layer layer_of(const LayerContext& context, const LayerShape& shape) {
  const bool executed = context.semantics->family == SemanticsFamily::foretrain;
  const bool reduces = !reduces_jointly(context, shape.feed_forward);
  std::unique_ptr<Half> attention;
  switch (shape.mixer) {
  case Mixer::attention:
    attention = make_attention(shape.window, reduces);
    break;
  case Mixer::latent:
    attention = make_latent_attention(shape.window);
    break;
  case Mixer::gated_delta:
  case Mixer::lightning:
  case Mixer::mamba2:
  case Mixer::none:
    break;
  }
  std::unique_ptr<Half> feed_forward;
  switch (shape.feed_forward) {
  case FeedForward::dense:
    feed_forward = make_dense(reduces);
    break;
  case FeedForward::moe:
    feed_forward = executed ? make_executed_moe() : make_moe();
    break;
  case FeedForward::none:
    break;
  }
  FORETRAIN_CHECK(attention && feed_forward, "unsupported() admits only layers of attention and feed-forward");
  return {std::move(attention), std::move(feed_forward)};
}

/// Buffers at the border of a block: x, y, dy, dx, each this rank's share of tokens × hidden.
struct Border {
  int x, y, dy, dx;
};

Border declare_border(BlockBuilder& b, bool has_input, bool has_output) {
  const LayerContext& c = b.context();
  const std::vector<std::int64_t> shape = {c.tokens_sp, c.model->hidden};
  Border border{-1, -1, -1, -1};
  if (has_input) {
    border.x = b.buffer("x", c.dtype, shape, MemoryPart::activations, BufferScope::input);
    border.dx = b.buffer("dx", c.dtype, shape, MemoryPart::temporaries, BufferScope::grad_input);
  }
  if (has_output) {
    border.y = b.buffer("y", c.dtype, shape, MemoryPart::activations, BufferScope::output);
    border.dy = b.buffer("dy", c.dtype, shape, MemoryPart::temporaries, BufferScope::grad_output);
  }
  return border;
}

std::string shape_name(const ModelSpec& model, const LayerShape& shape) {
  std::string name = shape.mixer == Mixer::latent ? "latent attention" : "attention";
  if (shape.window > 0) name += " (window " + std::to_string(shape.window) + ")";
  name += model.parallel_block ? " beside " : " + ";
  return name + (shape.feed_forward == FeedForward::moe ? "moe" : "dense");
}

/// Forward, then backward, of consecutive layers in one block.
class LayerStack {
public:
  LayerStack(const LayerContext& context, const std::vector<LayerShape>& shapes) {
    for (const LayerShape& shape : shapes) layers_.push_back(layer_of(context, shape));
  }
  /// `prefix`: before the names of all that it adds.
  void forward(BlockBuilder& b, int input, int output, const std::string& prefix = "") {
    const LayerContext& c = b.context();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      enter(b, i, prefix);
      const bool last = i + 1 == layers_.size();
      const int sum = last ? output : b.activation("x3", {c.tokens_sp, c.model->hidden});
      layers_[i].forward(b, input, sum);
      input = sum;
    }
    b.prefix("");
  }
  void backward(BlockBuilder& b, int grad, int grad_input, const std::string& prefix = "") {
    const LayerContext& c = b.context();
    for (std::size_t i = layers_.size(); i-- > 0;) {
      enter(b, i, prefix);
      const int below = i == 0 ? grad_input : b.temporary("dx1", {c.tokens_sp, c.model->hidden});
      layers_[i].backward(b, grad, below);
      grad = below;
    }
    b.prefix("");
  }

private:
  void enter(BlockBuilder& b, std::size_t layer, const std::string& prefix) const {
    b.prefix(prefix + (layers_.size() > 1 ? std::to_string(layer) + "/" : ""));
  }
  std::vector<Layer> layers_;
};

} // namespace

Block make_layers(const LayerContext& context, const std::vector<LayerShape>& shapes, bool recompute_all) {
  std::string name = shape_name(*context.model, shapes.front());
  if (shapes.size() > 1) name = std::to_string(shapes.size()) + " layers from " + name;
  const bool operators = context.layout.recompute.kind == RecomputeKind::operators;
  if (recompute_all) name += " (recomputed)";
  if (operators) name += " (operators recomputed)";
  BlockBuilder b(context, BlockKind::layer, name);
  b.layers(static_cast<int>(shapes.size()));
  const Border border = declare_border(b, true, true);
  LayerStack stack(context, shapes);
  stack.forward(b, border.x, border.y);
  b.begin(Pass::input);
  if (recompute_all || operators) {
    // Written again where the backward will look for it; the output itself is not kept.
    const int output = b.temporary("y.again", {context.tokens_sp, context.model->hidden});
    recomputed(b, [&] { stack.forward(b, border.x, output); });
  }
  stack.backward(b, border.dy, border.dx);
  return b.finish();
}

Block make_embedding(const LayerContext& context) {
  BlockBuilder b(context, BlockKind::embedding, "embedding");
  const Border border = declare_border(b, false, true);
  Embedding embedding(true);
  embedding.forward(b, border.y);
  b.begin(Pass::input);
  embedding.backward(b, border.dy);
  return b.finish();
}

Block make_head(const LayerContext& context) {
  BlockBuilder b(context, BlockKind::head, "head");
  const Border border = declare_border(b, true, false);
  // A tied table on one stage is the embedding's own parameter; across stages the last one holds a copy.
  Head head(!(context.model->tied_embeddings && context.layout.pp == 1));
  head.forward(b, border.x);
  b.begin(Pass::input);
  head.backward(b, -1, border.dx);
  return b.finish();
}

namespace {

/// One depth of multi-token prediction: two norms, their projection, a layer, and its own pass through head and loss
/// (DeepSeek-V3, arXiv:2412.19437, equations 21 to 24).
class Predictor {
public:
  Predictor(const LayerContext& context, const LayerShape& shape, bool holds_table, std::string prefix)
      : embedding_(holds_table), stack_(context, {shape}), head_(false), prefix_(std::move(prefix)) {}

  /// Reads the state of the depth before; its own.
  int forward(BlockBuilder& b, int state) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const std::vector<std::int64_t> share = {c.tokens_sp, h};
    b.prefix(prefix_ + "mtp/");
    const int embedded = b.activation("embedded", share);
    embedding_.forward(b, embedded); // the output table is the main head's
    norm_hidden_ = declare_norm(b, state, "norm_hidden");
    norm_embedded_ = declare_norm(b, embedded, "norm_embedded");
    norm_forward(b, norm_hidden_);
    norm_forward(b, norm_embedded_);
    projection_ = declare_linear(b, Segment::mtp_projection, {"projection", {h, 2 * h}, {h, 2 * h}, false, true},
                                 c.tokens_sp, Split::none);
    joined_ = b.activation("joined", {c.tokens_sp, 2 * h});
    b.compute(Segment::mtp_projection, {norm_hidden_.output, norm_embedded_.output}, {joined_},
              {traffic(c, 4.0 * static_cast<double>(c.width * c.tokens_sp * h))});
    const int projected = b.activation("projected", share);
    linear_forward(b, projection_, joined_, projected);
    const int out = b.activation("out", share);
    stack_.forward(b, projected, out, prefix_);
    b.prefix(prefix_ + "mtp/");
    head_.forward(b, out);
    return out;
  }

  /// From the gradient of its state that the next depth gives (−1: none) to that of the state it read, `passed` (−1:
  /// none) added.
  void backward(BlockBuilder& b, int grad_state, int passed, int grad_read) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const std::vector<std::int64_t> share = {c.tokens_sp, h};
    b.prefix(prefix_ + "mtp/");
    const int grad_out = b.temporary("dout", share);
    head_.backward(b, grad_state, grad_out);
    const int grad_projected = b.temporary("dprojected", share);
    stack_.backward(b, grad_out, grad_projected, prefix_);
    b.prefix(prefix_ + "mtp/");
    const int grad_joined = b.temporary("djoined", {c.tokens_sp, 2 * h});
    linear_input_gradient(b, projection_, grad_projected, grad_joined);
    linear_weight_gradient(b, projection_, joined_, grad_projected);
    const int grad_embedded = b.temporary("dembedded", share);
    norm_backward(b, norm_embedded_, grad_joined, -1, grad_embedded);
    norm_backward(b, norm_hidden_, grad_joined, passed, grad_read);
    embedding_.backward(b, grad_embedded);
  }

private:
  Embedding embedding_;
  LayerStack stack_;
  Head head_;
  std::string prefix_;
  Norm norm_hidden_, norm_embedded_;
  Linear projection_;
  int joined_ = -1;
};

} // namespace

Block make_mtp(const LayerContext& context, const std::vector<LayerShape>& shapes, bool holds_table) {
  std::string name = "multi-token prediction: " + shape_name(*context.model, shapes.front());
  if (shapes.size() > 1) name += ", " + std::to_string(shapes.size()) + " depths";
  BlockBuilder b(context, BlockKind::mtp, name);
  b.layers(static_cast<int>(shapes.size()));
  const LayerContext& c = context;
  const std::vector<std::int64_t> share = {c.tokens_sp, c.model->hidden};
  const Border border = declare_border(b, true, true);

  // The main hidden state passes through; each depth reads the one before beside the embedding of a later token.
  b.compute(Segment::residual, {border.x}, {border.y},
            {traffic(c, 2.0 * static_cast<double>(c.width * c.tokens_sp * c.model->hidden))});
  std::vector<Predictor> depths;
  int state = border.x;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    depths.emplace_back(context, shapes[i], holds_table && i == 0, i == 0 ? "" : "depth" + std::to_string(i + 1) + "/");
    state = depths.back().forward(b, state);
  }
  b.begin(Pass::input);
  int grad_state = -1;
  for (std::size_t i = depths.size(); i-- > 0;) {
    b.prefix("");
    const int grad_read = i == 0 ? border.dx : b.temporary("dstate" + std::to_string(i), share);
    depths[i].backward(b, grad_state, i == 0 ? border.dy : -1, grad_read);
    grad_state = grad_read;
  }
  b.prefix("");
  return b.finish();
}

Block make_layer(const LayerContext& context, const LayerShape& shape, bool recompute_all) {
  return make_layers(context, {shape}, recompute_all);
}

} // namespace foretrain
