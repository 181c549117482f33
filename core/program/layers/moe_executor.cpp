#include "core/program/axes/expert.h"
#include "core/program/axes/tensor.h"
#include "core/program/layers/feed_forward.h"
#include "core/program/layers/norm.h"

namespace foretrain::layers {
namespace {

/// Experts as our own executor runs them: routing weights travel with the rows and are applied inside the expert's
/// activation, so that expert outputs are not saved; the choice of experts is saved and never made again. Buffers whose
/// names begin with "expert." or "dexpert." have as many rows as this rank's experts get, "exchanged." as many as
/// arrive from the expert-parallel exchange.
class ExecutedMoe final : public Half {
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
    if (recomputes(c, RecomputeModule::layernorm)) repeat(b, norm_);
    const int grad_norm = routed_backward(b, grad);
    return shared_.up.weight >= 0 ? shared_backward(b, grad, grad_norm) : grad_norm;
  }

private:
  /// Traffic of so many rows.
  [[nodiscard]] static Kernel rows(const LayerContext& c, std::int64_t count) {
    return traffic(c, static_cast<double>(c.width * count) * c.model->hidden);
  }

  void declare(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const MoeSpec& moe = *c.model->moe;
    const std::int64_t h = c.model->hidden;
    const std::int64_t experts = moe.experts;
    const std::int64_t matrices = c.model->gated ? 2 : 1;
    sizes_ = expert::sizes_of(c);
    group_ = std::int64_t{c.layout.ep} * c.layout.etp;
    gathers_ = c.layout.expert_dispatch.kind == DispatchKind::all_gather && group_ > 1;
    up_width_ = matrices * sizes_.width;
    router_ = b.parameter({"router", {experts, h}, {experts, h}, false, true});
    up_ = b.parameter({"expert_up", {experts, matrices * moe.ffn, h}, {sizes_.experts, up_width_, h}, true, false});
    down_ = b.parameter({"expert_down", {experts, h, moe.ffn}, {sizes_.experts, h, sizes_.width}, true, false});
    weights_ = statistic(b, "router.weights", {sizes_.tokens, moe.top_k});
    choice_ = b.buffer("router.choice", DType::int64, {sizes_.tokens, moe.top_k}, MemoryPart::activations);
    if (gathers_)
      all_choices_ =
          b.buffer("gathered.choice", DType::int64, {group_ * sizes_.tokens, moe.top_k}, MemoryPart::activations);
    in_ = b.activation("expert.in", {sizes_.received, h});
    row_weights_ = statistic(b, "expert.weights", {sizes_.received});
    up_out_ = b.activation("expert.up", {sizes_.received, up_width_});
    hidden_ = b.activation("expert.hidden", {sizes_.received, sizes_.width});
    out_ = b.temporary("moe_out", {sizes_.tokens, h});
    if (moe.shared_ffn > 0)
      shared_ = declare_mlp(b, "shared", moe.shared_ffn, Segment::shared_up, Segment::shared_activation,
                            Segment::shared_down, false);
  }

  [[nodiscard]] static int statistic(BlockBuilder& b, const std::string& name, std::vector<std::int64_t> shape) {
    return b.buffer(name, statistics_dtype(b.context()), std::move(shape), MemoryPart::activations);
  }
  [[nodiscard]] static int passing(BlockBuilder& b, const std::string& name, std::vector<std::int64_t> shape) {
    return b.buffer(name, statistics_dtype(b.context()), std::move(shape), MemoryPart::temporaries);
  }

  void emit(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const std::int64_t experts = c.model->moe->experts;
    b.compute(Segment::router, {norm_.output}, {weights_, choice_}, {gemm(c, sizes_.tokens, experts, h)}).weights = {
        router_};
    if (gathers_)
      gather(b);
    else if (group_ == 1)
      b.compute(Segment::permute, {norm_.output, weights_, choice_}, {in_, row_weights_}, {rows(c, 2 * sizes_.sent)});
    else
      exchange(b);
    experts_forward(b);
    const int expert_out = b.temporary("expert.out", {sizes_.received, h});
    b.compute(Segment::expert_down, {hidden_}, {expert_out}, {grouped(c, h, sizes_.width, GemmRole::forward)})
        .weights = {down_};
    combine(b, expert_out);
    if (shared_.up.weight >= 0) shared_forward(b);
  }

  /// All tokens of the group on each of its ranks, which takes the rows of its experts.
  void gather(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const std::int64_t k = c.model->moe->top_k;
    const int gathered = b.temporary("gathered", {group_ * sizes_.tokens, h});
    const int gathered_weights = passing(b, "gathered.weights", {group_ * sizes_.tokens, k});
    const std::int64_t bytes = h * c.width + k * (bits_of(statistics_dtype(c)) / 8 + 8);
    b.collective(Collective::all_gather, Group::ep_etp, Bytes(group_ * sizes_.tokens * bytes),
                 {norm_.output, weights_, choice_}, {gathered, gathered_weights, all_choices_});
    b.compute(Segment::permute, {gathered, gathered_weights, all_choices_}, {in_, row_weights_},
              {rows(c, 2 * sizes_.received)});
  }

  /// Rows go to the ranks of their experts.
  void exchange(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const int sent = b.temporary("sent", {sizes_.sent, h});
    const int sent_weights = passing(b, "sent.weights", {sizes_.sent});
    b.compute(Segment::permute, {norm_.output, weights_, choice_}, {sent, sent_weights}, {rows(c, 2 * sizes_.sent)});
    b.host_sync().reads = {choice_};
    const std::vector<int> arrived = dispatch(b, {sent, sent_weights}, "");
    b.compute(Segment::permute, arrived, {in_, row_weights_}, {rows(c, 2 * sizes_.received)});
  }

  /// Bytes of `count` rows of the buffers that travel together.
  [[nodiscard]] Bytes row_bytes(const LayerContext& c, std::int64_t count, std::size_t buffers) const {
    const std::int64_t weight = buffers > 1 ? bits_of(statistics_dtype(c)) / 8 : 0;
    return Bytes(count * (c.model->hidden * c.width + weight));
  }

  /// `d`: "d" in backward. Rows and, when there are two buffers, their weights.
  std::vector<int> dispatch(BlockBuilder& b, std::vector<int> buffers, const std::string& d) {
    const LayerContext& c = b.context();
    const std::size_t count = buffers.size();
    if (c.layout.ep > 1) {
      const std::string name = d + (c.layout.etp > 1 ? "exchanged." : "expert.arrived.");
      const std::vector<int> to = travelling(b, name, sizes_.received / c.layout.etp, count);
      b.collective(Collective::all_to_all, Group::ep, row_bytes(c, sizes_.sent, count), buffers, to);
      buffers = to;
    }
    if (c.layout.etp > 1) {
      const std::vector<int> to = travelling(b, d + "expert.arrived.", sizes_.received, count);
      b.collective(Collective::all_gather, Group::etp, row_bytes(c, sizes_.received, count), buffers, to);
      buffers = to;
    }
    return buffers;
  }
  /// The way back: rows that were split over etp are summed.
  std::vector<int> undo_dispatch(BlockBuilder& b, std::vector<int> buffers, const std::string& name) {
    const LayerContext& c = b.context();
    const std::size_t count = buffers.size();
    const std::string d = name.front() == 'd' ? "d" : "";
    if (c.layout.etp > 1) {
      const bool last = c.layout.ep == 1;
      const std::vector<int> to =
          travelling(b, last ? name + "." : d + "exchanged.back.", sizes_.received / c.layout.etp, count);
      b.collective(Collective::reduce_scatter, Group::etp, row_bytes(c, sizes_.received, count), buffers, to);
      buffers = to;
    }
    if (c.layout.ep > 1) {
      const std::vector<int> to = travelling(b, name + ".", sizes_.sent, count);
      b.collective(Collective::all_to_all, Group::ep, row_bytes(c, sizes_.sent, count), buffers, to);
      buffers = to;
    }
    return buffers;
  }
  std::vector<int> travelling(BlockBuilder& b, const std::string& name, std::int64_t count, std::size_t buffers) {
    std::vector<int> list = {b.temporary(name + "rows", {count, b.context().model->hidden})};
    if (buffers > 1) list.push_back(passing(b, name + "weights", {count}));
    return list;
  }

  void experts_forward(BlockBuilder& b) {
    const LayerContext& c = b.context();
    b.compute(Segment::expert_up, {in_}, {up_out_}, {grouped(c, up_width_, c.model->hidden, GemmRole::forward)})
        .weights = {up_};
    emit_activation(b);
  }
  void emit_activation(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const double moved = static_cast<double>(c.width * sizes_.received) * static_cast<double>(up_width_ + sizes_.width);
    b.compute(Segment::expert_activation, {up_out_, row_weights_}, {hidden_}, {traffic(c, moved)});
  }

  void combine(BlockBuilder& b, int expert_out) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    if (gathers_) {
      const int partial = b.temporary("partial", {group_ * sizes_.tokens, h});
      b.compute(Segment::unpermute, {expert_out, all_choices_}, {partial}, {rows(c, 2 * sizes_.received)});
      b.collective(Collective::reduce_scatter, Group::ep_etp, Bytes(group_ * sizes_.tokens * h * c.width), {partial},
                   {out_});
      return;
    }
    int back = expert_out;
    if (group_ > 1) {
      const int unsorted = b.temporary("expert.unsorted", {sizes_.received, h});
      b.compute(Segment::unpermute, {expert_out}, {unsorted}, {rows(c, 2 * sizes_.received)});
      back = undo_dispatch(b, {unsorted}, "combined").front();
    }
    b.compute(Segment::unpermute, {back, choice_}, {out_}, {rows(c, sizes_.tokens + sizes_.sent)});
  }

  void shared_forward(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const tensor::Entry entry = begin_column(b, shared_.up, norm_.output, "norm2");
    const int partial = b.temporary("shared_down", {c.tokens, h});
    shared_share_ = mlp_forward(b, shared_, entry, partial, "shared_down");
  }

  /// Gradient of the norm's output through the experts and the router.
  int routed_backward(BlockBuilder& b, int grad) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const std::int64_t k = c.model->moe->top_k;
    const int grad_out = b.temporary("dexpert.out", {sizes_.received, h});
    if (gathers_) {
      const int all = b.temporary("dgathered", {group_ * sizes_.tokens, h});
      b.collective(Collective::all_gather, Group::ep_etp, Bytes(group_ * sizes_.tokens * h * c.width), {grad}, {all});
      b.compute(Segment::unpermute, {all, all_choices_}, {grad_out}, {rows(c, 2 * sizes_.received)});
    } else if (group_ == 1) {
      b.compute(Segment::unpermute, {grad, choice_}, {grad_out}, {rows(c, sizes_.tokens + sizes_.sent)});
    } else {
      const int grad_rows = b.temporary("dcombined", {sizes_.sent, h});
      b.compute(Segment::unpermute, {grad, choice_}, {grad_rows}, {rows(c, sizes_.tokens + sizes_.sent)});
      b.compute(Segment::unpermute, dispatch(b, {grad_rows}, "d"), {grad_out}, {rows(c, 2 * sizes_.received)});
    }
    const auto [grad_in, grad_row_weights] = experts_backward(b, grad_out);
    const int grad_norm = b.temporary("dnorm2.routed", {sizes_.tokens, h});
    const int grad_weights = passing(b, "drouter.weights", {sizes_.tokens, k});
    if (gathers_) {
      const int partial = b.temporary("dpartial", {group_ * sizes_.tokens, h});
      const int partial_weights = passing(b, "dpartial.weights", {group_ * sizes_.tokens, k});
      b.compute(Segment::permute, {grad_in, grad_row_weights, all_choices_}, {partial, partial_weights},
                {rows(c, 2 * sizes_.received)});
      const std::int64_t bytes = h * c.width + k * bits_of(statistics_dtype(c)) / 8;
      b.collective(Collective::reduce_scatter, Group::ep_etp, Bytes(group_ * sizes_.tokens * bytes),
                   {partial, partial_weights}, {grad_norm, grad_weights});
    } else {
      std::vector<int> back = {grad_in, grad_row_weights};
      if (group_ > 1) {
        const std::vector<int> unsorted = travelling(b, "dexpert.unsorted.", sizes_.received, 2);
        b.compute(Segment::permute, back, unsorted, {rows(c, 2 * sizes_.received)});
        back = undo_dispatch(b, unsorted, "dsent");
      }
      back.push_back(choice_);
      b.compute(Segment::permute, back, {grad_norm, grad_weights}, {rows(c, sizes_.tokens + sizes_.sent)});
    }
    router_backward(b, grad_norm, grad_weights);
    return grad_norm;
  }

  std::pair<int, int> experts_backward(BlockBuilder& b, int grad_out) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const int grad_hidden = b.temporary("dexpert.hidden", {sizes_.received, sizes_.width});
    b.compute(Segment::expert_down, {grad_out}, {grad_hidden}, {grouped(c, sizes_.width, h, GemmRole::input_gradient)})
        .weights = {down_};
    if (recomputes(c, RecomputeModule::activation)) recomputed(b, [&] { emit_activation(b); });
    in_weight_pass(b, [&] {
      b.compute(Segment::expert_down, {hidden_, grad_out}, {}, {grouped(c, h, sizes_.width, GemmRole::weight_gradient)})
          .weight_gradients = {down_};
    });
    const int grad_up = b.temporary("dexpert.up", {sizes_.received, up_width_});
    const int grad_weights = passing(b, "dexpert.weights", {sizes_.received});
    const double moved =
        static_cast<double>(c.width * sizes_.received) * static_cast<double>(2 * up_width_ + sizes_.width);
    b.compute(Segment::expert_activation, {up_out_, row_weights_, grad_hidden}, {grad_up, grad_weights},
              {traffic(c, moved)});
    const int grad_in = b.temporary("dexpert.in", {sizes_.received, h});
    b.compute(Segment::expert_up, {grad_up}, {grad_in}, {grouped(c, h, up_width_, GemmRole::input_gradient)})
        .weights = {up_};
    in_weight_pass(b, [&] {
      b.compute(Segment::expert_up, {in_, grad_up}, {}, {grouped(c, up_width_, h, GemmRole::weight_gradient)})
          .weight_gradients = {up_};
    });
    return {grad_in, grad_weights};
  }

  void router_backward(BlockBuilder& b, int grad_norm, int grad_weights) {
    const LayerContext& c = b.context();
    const std::int64_t experts = c.model->moe->experts;
    const std::int64_t h = c.model->hidden;
    const int grad_scores = passing(b, "drouter", {sizes_.tokens, experts});
    const double scores = static_cast<double>(bits_of(statistics_dtype(c)) / 8 * sizes_.tokens * experts);
    b.compute(Segment::router, {weights_, choice_, grad_weights}, {grad_scores}, {traffic(c, scores)});
    b.compute(Segment::router, {grad_scores, grad_norm}, {grad_norm},
              {gemm(c, sizes_.tokens, h, experts, GemmRole::input_gradient)})
        .weights = {router_};
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
    const int gathered = tensor::enter(b, norm_.output, "norm2", h);
    const int share = tensor::leave_backward_with(b, grad_gathered, "norm2.shared", h,
                                                  [&] { linear_weight_gradient(b, shared_.up, gathered, grad_up); });
    const int sum = b.temporary("dnorm2", {c.tokens_sp, h});
    b.compute(Segment::residual, {grad_routed, share}, {sum}, {rows(c, 3 * c.tokens_sp)});
    return sum;
  }

  [[nodiscard]] Kernel grouped(const LayerContext& c, std::int64_t n, std::int64_t k, GemmRole role) const {
    const double each = static_cast<double>(sizes_.received) / static_cast<double>(sizes_.experts);
    return grouped_gemm(c, sizes_.experts, each, n, k, role);
  }

  Norm norm_;
  expert::Sizes sizes_;
  Mlp shared_;
  std::int64_t group_ = 1; ///< ranks that hold one copy of the experts
  bool gathers_ = false;
  std::int64_t up_width_ = 0;
  int router_ = -1, up_ = -1, down_ = -1;
  int weights_ = -1, choice_ = -1, all_choices_ = -1;
  int in_ = -1, row_weights_ = -1, up_out_ = -1, hidden_ = -1, out_ = -1, shared_share_ = -1;
};

} // namespace

std::unique_ptr<Half> make_executed_moe() {
  return std::make_unique<ExecutedMoe>();
}

} // namespace foretrain::layers
