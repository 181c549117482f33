#include <cmath>

#include "core/program/axes/expert.h"
#include "core/program/axes/tensor.h"
#include "core/program/layers/feed_forward.h"
#include "core/program/layers/norm.h"

namespace foretrain::layers {
namespace {

/// fp32 tensors of tokens × experts that the router keeps: logits, scores, normalised and masked probabilities.
constexpr std::int64_t kRouterTensors = 4;

/// Bytes per element that the bias of the experts' down projection moves, weighted by the router's probabilities in
/// operators of their own (NVIDIA/Megatron-LM@d98e8a64d core/transformer/moe/experts.py _apply_bias: bias times
/// probability in fp32 4, sum 2 + 4 + 4, experts joined 4 + 4, cast 4 + 2). Backward: cast 2 + 4, gradient of the
/// output 4 + 2, of the bias 4 + 4 + 4, of the probabilities 4 + 4 + 4, experts' gradients joined 2 + 2.
constexpr double kBiasForward = 28;
constexpr double kBiasBackward = 40;

double elements(std::int64_t rows, std::int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(columns);
}

bool bias_in_operators(const LayerContext& c) {
  return c.model->moe->expert_bias && c.semantics->family == SemanticsFamily::megatron;
}

/// norm → router → permute → dispatch → experts → combine → unpermute (+ shared experts), as Megatron-Core
/// with the all-to-all dispatcher and fused permutation. Probabilities are applied inside the expert activation, so
/// expert outputs are not saved.
class Moe final : public Half {
public:
  [[nodiscard]] std::string_view name() const override { return "moe_out"; }
  [[nodiscard]] bool takes_quantised(const LayerContext&) const override { return false; }

  std::vector<int> forward(BlockBuilder& b, const Norm& norm) override {
    norm_ = norm;
    declare(b);
    lead(b, norm_);
    emit(b);
    if (shared_.up.weight >= 0) return {out_, shared_share_};
    return {out_};
  }

  int backward(BlockBuilder& b, int grad) override {
    const LayerContext& c = b.context();
    if (recomputes(c, RecomputeModule::moe)) {
      repeat(b, norm_);
      recomputed(b, [&] { emit(b); });
    }
    const int grad_norm = routed_backward(b, grad);
    return shared_.up.weight >= 0 ? shared_backward(b, grad, grad_norm) : grad_norm;
  }

private:
  [[nodiscard]] static double row_bytes(const LayerContext& c, std::int64_t rows) {
    return static_cast<double>(c.width * rows) * c.model->hidden;
  }

  void declare(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const MoeSpec& moe = *c.model->moe;
    const std::int64_t h = c.model->hidden;
    const std::int64_t experts = moe.experts;
    const std::int64_t matrices = c.model->gated ? 2 : 1;
    sizes_ = expert::sizes_of(c);
    low_ = c.low.active;
    router_ = b.parameter({"router", {experts, h}, {experts, h}, false, true});
    if (moe.router_bias || moe.correction_bias) b.parameter({"router.bias", {experts}, {experts}, false, true});
    up_ = b.parameter({"expert_up",
                       {experts, matrices * moe.ffn, h},
                       {sizes_.experts, matrices * sizes_.width, h},
                       true,
                       false,
                       low_});
    down_ = b.parameter({"expert_down", {experts, h, moe.ffn}, {sizes_.experts, h, sizes_.width}, true, false, low_});
    if (moe.expert_bias) {
      b.parameter(
          {"expert_up.bias", {experts, matrices * moe.ffn}, {sizes_.experts, matrices * sizes_.width}, true, false});
      b.parameter({"expert_down.bias", {experts, h}, {sizes_.experts, h}, true, false});
    }
    scores_ = b.buffer("router.scores", DType::fp32, {kRouterTensors, sizes_.tokens, experts}, MemoryPart::activations);
    map_ = b.buffer("routing_map", DType::int8, {sizes_.tokens, experts}, MemoryPart::activations);
    rows_ = b.buffer("row_map", DType::fp32, {sizes_.tokens, 2 * experts + 1}, MemoryPart::activations);
    expert_in_ = b.activation("expert_in", {sizes_.received, h});
    up_out_ = b.activation("expert_up", {sizes_.received, matrices * sizes_.width});
    hidden_ = b.activation("expert_hidden", {sizes_.received, sizes_.width});
    const Linear expert{Segment::expert_up, up_, sizes_.received, h, sizes_.width, low_, {}};
    kept_in_ = kept_buffer(b, expert, expert_in_, false);
    kept_hidden_ = kept_buffer(b, expert, hidden_, false);
    out_ = b.temporary("moe_out", {sizes_.tokens, h});
    if (moe.shared_ffn > 0) {
      shared_ = declare_mlp(b, "shared", moe.shared_ffn, Segment::shared_up, Segment::shared_activation,
                            Segment::shared_down, false);
      kept_norm_ = kept_buffer(b, shared_.up, norm_.output, true);
      if (moe.shared_gate) b.parameter({"shared_gate", {h}, {h}, false, true});
    }
  }

  void emit(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    route(b);
    const bool local = c.layout.ep * c.layout.etp == 1;
    const int permuted = local ? expert_in_ : b.temporary("permuted", {sizes_.sent, h});
    b.compute(Segment::permute, {norm_.output, rows_, map_}, {permuted},
              {traffic(c, row_bytes(c, sizes_.tokens) + row_bytes(c, sizes_.sent))});
    if (!local) {
      if (expert::needs_host_counts(c)) b.host_sync();
      const int arrived = expert::dispatch(b, permuted, "arrived");
      b.compute(Segment::permute, {arrived}, {expert_in_}, {traffic(c, 2 * row_bytes(c, sizes_.received))});
    }
    experts_forward(b);
    const int expert_out = b.temporary("expert_out", {sizes_.received, h});
    Op& down =
        b.compute(Segment::expert_down, {kept_hidden_}, {expert_out}, {grouped(c, h, sizes_.width, GemmRole::forward)});
    down.weights = {down_};
    if (bias_in_operators(c)) {
      down.kernels.push_back(traffic(c, kBiasForward * elements(sizes_.received, h)));
      down.scratch = Bytes(2 * 4 * sizes_.received * h); // the sums by expert and joined, in fp32
    }
    int back = expert_out;
    if (!local) {
      const int unsorted = b.temporary("unsorted", {sizes_.received, h});
      b.compute(Segment::unpermute, {expert_out}, {unsorted}, {traffic(c, 2 * row_bytes(c, sizes_.received))});
      back = expert::combine(b, unsorted, "combined");
    }
    b.compute(Segment::unpermute, {back, rows_, map_}, {out_},
              {traffic(c, row_bytes(c, sizes_.tokens) + row_bytes(c, sizes_.sent))});
    if (shared_.up.weight >= 0) shared_forward(b);
  }

  void route(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t experts = c.model->moe->experts;
    const double scores = 4.0 * static_cast<double>(sizes_.tokens * experts);
    b.compute(Segment::router, {norm_.output}, {scores_, map_, rows_},
              {gemm(c, sizes_.tokens, experts, c.model->hidden), traffic(c, 6 * scores)})
        .weights = {router_};
  }

  void experts_forward(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const std::int64_t up_width = (c.model->gated ? 2 : 1) * sizes_.width;
    keep_rows(b, Segment::expert_up, expert_in_, kept_in_);
    b.compute(Segment::expert_up, {kept_in_}, {up_out_}, {grouped(c, up_width, h, GemmRole::forward)}).weights = {up_};
    emit_activation(b);
  }

  void emit_activation(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t up_width = (c.model->gated ? 2 : 1) * sizes_.width;
    const double moved = static_cast<double>(c.width * sizes_.received) * static_cast<double>(up_width + sizes_.width);
    b.compute(Segment::expert_activation, {up_out_, scores_}, {hidden_}, {traffic(c, moved)});
    keep_rows(b, Segment::expert_activation, hidden_, kept_hidden_);
  }

  /// Quantises the rows of an expert product.
  void keep_rows(BlockBuilder& b, Segment segment, int rows, int kept) const {
    Linear linear;
    linear.segment = segment;
    keep(b, linear, rows, kept);
  }

  void shared_forward(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    keep(b, shared_.up, norm_.output, kept_norm_);
    const tensor::Entry entry = begin_column(b, shared_.up, kept_norm_, "norm2");
    const int partial = b.temporary("shared_down", {c.tokens, h});
    shared_share_ = mlp_forward(b, shared_, entry, partial, "shared_down");
  }

  /// Gradient of the norm's output through the experts and the router.
  int routed_backward(BlockBuilder& b, int grad) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const bool local = c.layout.ep * c.layout.etp == 1;
    const int grad_rows = b.temporary("dcombined", {sizes_.sent, h});
    Op& spread = b.compute(Segment::unpermute, {grad, rows_, map_}, {grad_rows},
                           {traffic(c, row_bytes(c, sizes_.tokens) + row_bytes(c, sizes_.sent))});
    if (bias_in_operators(c)) spread.kernels.push_back(traffic(c, kBiasBackward * elements(sizes_.received, h)));
    int grad_out = grad_rows;
    if (!local) {
      const int arrived = expert::dispatch(b, grad_rows, "darrived");
      grad_out = b.temporary("dexpert_out", {sizes_.received, h});
      b.compute(Segment::unpermute, {arrived}, {grad_out}, {traffic(c, 2 * row_bytes(c, sizes_.received))});
    }
    const int grad_in = experts_backward(b, grad_out);
    int back = grad_in;
    if (!local) {
      const int unsorted = b.temporary("dunsorted", {sizes_.received, h});
      b.compute(Segment::permute, {grad_in}, {unsorted}, {traffic(c, 2 * row_bytes(c, sizes_.received))});
      back = expert::combine(b, unsorted, "dpermuted");
    }
    const int grad_norm = b.temporary("dnorm2.routed", {sizes_.tokens, h});
    b.compute(Segment::permute, {back, rows_, map_}, {grad_norm},
              {traffic(c, row_bytes(c, sizes_.tokens) + row_bytes(c, sizes_.sent))});
    router_backward(b, grad_norm);
    return grad_norm;
  }

  int experts_backward(BlockBuilder& b, int grad_out) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const std::int64_t up_width = (c.model->gated ? 2 : 1) * sizes_.width;
    const int grad_hidden = b.temporary("dexpert_hidden", {sizes_.received, sizes_.width});
    expert_input_gradient(b, Segment::expert_down, down_, grad_out, grad_hidden, sizes_.width, h);
    if (b.trains(down_) && recomputes(c, RecomputeModule::activation)) recomputed(b, [&] { emit_activation(b); });
    expert_weight_gradient(b, Segment::expert_down, down_, kept_hidden_, grad_out, h, sizes_.width);
    const int grad_up = b.temporary("dexpert_up", {sizes_.received, up_width});
    const double moved =
        static_cast<double>(c.width * sizes_.received) * static_cast<double>(2 * up_width + sizes_.width);
    b.compute(Segment::expert_activation, {up_out_, grad_hidden, scores_}, {grad_up}, {traffic(c, moved)});
    const int grad_in = b.temporary("dexpert_in", {sizes_.received, h});
    expert_input_gradient(b, Segment::expert_up, up_, grad_up, grad_in, h, up_width);
    expert_weight_gradient(b, Segment::expert_up, up_, kept_in_, grad_up, up_width, h);
    return grad_in;
  }

  /// dInput of width n from dOutput of width k.
  void expert_input_gradient(BlockBuilder& b, Segment segment, int weight, int grad, int grad_input, std::int64_t n,
                             std::int64_t k) const {
    const LayerContext& c = b.context();
    const double elements = static_cast<double>(sizes_.received) * static_cast<double>(k);
    std::vector<Kernel> kernels;
    if (low_) kernels.push_back(quantisation(c, elements));
    kernels.push_back(grouped(c, n, k, GemmRole::input_gradient));
    Op& op = b.compute(segment, {grad}, {grad_input}, std::move(kernels));
    op.weights = {weight};
    if (low_) op.scratch = Bytes(std::llround(elements * c.low.activation * c.low.directions));
  }

  /// Gradient of n × k from the rows that an expert read and the gradient of what it wrote.
  void expert_weight_gradient(BlockBuilder& b, Segment segment, int weight, int rows, int grad, std::int64_t n,
                              std::int64_t k) const {
    if (!b.trains(weight)) return;
    in_weight_pass(b, [&] {
      const LayerContext& c = b.context();
      Op& op = b.compute(segment, {rows, grad}, {}, {grouped(c, n, k, GemmRole::weight_gradient)});
      op.weight_gradients = {weight};
      if (low_)
        op.scratch =
            Bytes(std::llround(static_cast<double>(sizes_.received) * static_cast<double>(n) * c.low.activation));
      op.scratch +=
          sum_gradient(c, static_cast<double>(sizes_.experts) * static_cast<double>(n) * static_cast<double>(k), op);
    });
  }

  void router_backward(BlockBuilder& b, int grad_norm) {
    const LayerContext& c = b.context();
    const std::int64_t experts = c.model->moe->experts;
    const std::int64_t h = c.model->hidden;
    const int grad_scores = b.buffer("drouter", DType::fp32, {sizes_.tokens, experts}, MemoryPart::temporaries);
    const double scores = 4.0 * static_cast<double>(sizes_.tokens * experts);
    b.compute(Segment::router, {scores_, grad_norm}, {grad_scores}, {traffic(c, 4 * scores)});
    b.compute(Segment::router, {grad_scores, grad_norm}, {grad_norm},
              {gemm(c, sizes_.tokens, h, experts, GemmRole::input_gradient)})
        .weights = {router_};
    if (!b.trains(router_)) return;
    in_weight_pass(b, [&] {
      b.compute(Segment::router, {norm_.output, grad_scores}, {},
                {gemm(c, sizes_.tokens, experts, h, GemmRole::weight_gradient)})
          .weight_gradients = {router_};
    });
  }

  int shared_backward(BlockBuilder& b, int grad, int grad_routed) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const tensor::Entry entry = begin_row_backward(b, shared_.down, grad, "shared_down");
    const int grad_gathered = b.temporary("dnorm2.shared", {c.tokens, h});
    const int grad_up = mlp_backward(b, shared_, entry, grad_gathered, "shared");
    const int gathered = needs_input(b, shared_.up) ? tensor::enter(b, kept_norm_, "norm2", h) : -1;
    const int share = tensor::leave_backward_with(b, grad_gathered, "norm2.shared", h,
                                                  [&] { linear_weight_gradient(b, shared_.up, gathered, grad_up); });
    const int total = b.temporary("dnorm2", {c.tokens_sp, h});
    b.compute(Segment::residual, {grad_routed, share}, {total}, {traffic(c, 3 * row_bytes(c, c.tokens_sp))});
    return total;
  }

  [[nodiscard]] Kernel grouped(const LayerContext& c, std::int64_t n, std::int64_t k, GemmRole role) const {
    const double rows = static_cast<double>(sizes_.received) / static_cast<double>(sizes_.experts);
    return grouped_gemm(c, sizes_.experts, rows, n, k, role, low_);
  }

  Norm norm_;
  expert::Sizes sizes_;
  Mlp shared_;
  bool low_ = false; ///< expert products in 8 or 4 bits
  int router_ = -1, up_ = -1, down_ = -1;
  int kept_in_ = -1, kept_hidden_ = -1, kept_norm_ = -1; ///< inputs of products as they stay for the backward
  int scores_ = -1, map_ = -1, rows_ = -1;
  int expert_in_ = -1, up_out_ = -1, hidden_ = -1, out_ = -1, shared_share_ = -1;
};

} // namespace

std::unique_ptr<Half> make_moe() {
  return std::make_unique<Moe>();
}

} // namespace foretrain::layers
