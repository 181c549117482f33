#include "core/base/check.h"
#include "core/program/axes/tensor.h"
#include "core/program/layers/attention.h"
#include "core/program/layers/linear.h"

namespace foretrain::layers {
namespace {

/// Multi-head latent attention, DeepSeek-V2 (arXiv:2405.04434), as Megatron-Core runs it: the down projections are
/// replicated over tp and work on this rank's tokens, the up projections are split by head.
class LatentAttentionBlock final : public Half {
public:
  explicit LatentAttentionBlock(int window) : window_(window) {}

  [[nodiscard]] std::string_view name() const override { return "attention_out"; }
  [[nodiscard]] bool takes_quantised(const LayerContext&) const override { return false; }

  std::vector<int> forward(BlockBuilder& b, const Norm& norm) override {
    const LayerContext& c = b.context();
    const LatentAttention& mla = *c.model->latent;
    const std::int64_t h = c.model->hidden;
    norm_ = norm;
    qk_ = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
    core_ = declare_core(b, AttentionWidths{c.heads, c.heads, static_cast<int>(qk_), mla.v_head_dim, window_});
    declare(b);
    kept_ = kept_buffer(b, out_, core_.out, true);
    lead(b, norm_);
    emit_down(b);
    emit_up(b);
    core_forward(b, core_);
    keep(b, out_, core_.out, kept_);
    const int partial = b.temporary("attention_out", {c.tokens, h});
    return {row_forward(b, out_, kept_, partial, "attention_out")};
  }

  int backward(BlockBuilder& b, int grad) override {
    const LayerContext& c = b.context();
    const tensor::Entry entry = begin_row_backward(b, out_, grad, "attention_out");
    const int grad_core = b.temporary("dattention", {c.tokens, out_.in});
    row_input_gradient(b, out_, entry, grad_core);
    linear_weight_gradient(b, out_, kept_, entry.whole);
    if (recomputes(c, RecomputeModule::mla_up)) recomputed(b, [&] { emit_up(b); });
    const std::array<int, 3> g = core_backward(b, recompute_core(b, core_), grad_core);
    up_backward(b, g);
    down_backward(b);
    return grad_norm_;
  }

private:
  void declare(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const LatentAttention& mla = *c.model->latent;
    const std::int64_t h = c.model->hidden;
    const std::int64_t heads = c.model->heads;
    const std::int64_t kv_out = mla.qk_nope_head_dim + mla.v_head_dim;
    kv_lora_ = mla.kv_lora_rank;
    compressed_ = kv_lora_ + mla.qk_rope_head_dim;
    q_lora_ = mla.q_lora_rank.value_or(0);
    if (q_lora_ > 0) {
      q_down_ = declare_linear(b, Segment::mla_down, {"q_down", {q_lora_, h}, {q_lora_, h}, false, true}, c.tokens_sp,
                               Split::none);
      q_norm_ = b.parameter({"q_norm", {q_lora_}, {q_lora_}, false, true});
      q_compressed_ = b.activation("q_compressed", {c.tokens_sp, q_lora_});
      q_normed_ = normed(b, "q_normed", q_lora_);
    }
    const std::int64_t q_in = q_lora_ > 0 ? q_lora_ : h;
    q_up_ = declare_linear(b, Segment::mla_up, {"q_up", {heads * qk_, q_in}, {c.heads * qk_, q_in}}, c.tokens,
                           Split::columns);
    kv_down_ = declare_linear(b, Segment::mla_down, {"kv_down", {compressed_, h}, {compressed_, h}, false, true},
                              c.tokens_sp, Split::none);
    kept_norm_ = kept_buffer(b, kv_down_, norm_.output, false);
    kv_norm_ = b.parameter({"kv_norm", {kv_lora_}, {kv_lora_}, false, true});
    kv_compressed_ = b.activation("kv_compressed", {c.tokens_sp, compressed_});
    kv_normed_ = normed(b, "kv_normed", kv_lora_);
    kv_up_ = declare_linear(b, Segment::mla_up, {"kv_up", {heads * kv_out, kv_lora_}, {c.heads * kv_out, kv_lora_}},
                            c.tokens, Split::columns);
    const std::int64_t inner = std::int64_t{c.heads} * mla.v_head_dim;
    out_ = declare_linear(b, Segment::attention_out, {"attention_out", {h, heads * mla.v_head_dim}, {h, inner}},
                          c.tokens, Split::rows, AdapterTarget::attention_out);
  }

  /// Output of an inner norm, which only an up projection reads.
  static int normed(BlockBuilder& b, const std::string& name, std::int64_t width) {
    const LayerContext& c = b.context();
    if (quantises_norm(c, std::nullopt)) return b.quantised(name, {c.tokens_sp, width}, MemoryPart::activations);
    return b.activation(name, {c.tokens_sp, width});
  }

  [[nodiscard]] double norm_bytes(const LayerContext& c, std::int64_t width, int passes) const {
    return passes * static_cast<double>(c.width * c.tokens_sp) * static_cast<double>(width);
  }

  void emit_down(BlockBuilder& b) {
    const LayerContext& c = b.context();
    keep(b, kv_down_, norm_.output, kept_norm_);
    if (q_lora_ > 0) {
      linear_forward(b, q_down_, kept_norm_, q_compressed_);
      b.compute(Segment::norm, {q_compressed_}, {q_normed_}, {traffic(c, norm_bytes(c, q_lora_, 2))}).weights = {
          q_norm_};
    }
    linear_forward(b, kv_down_, kept_norm_, kv_compressed_);
    b.compute(Segment::norm, {kv_compressed_}, {kv_normed_}, {traffic(c, norm_bytes(c, kv_lora_, 2))}).weights = {
        kv_norm_};
  }

  void emit_up(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const int q_in = tensor::enter(b, q_lora_ > 0 ? q_normed_ : kept_norm_, "q_normed", q_up_.in);
    const int q = b.temporary("q_up", {c.tokens, q_up_.out});
    linear_forward(b, q_up_, q_in, q);
    const int kv_in = tensor::enter(b, kv_normed_, "kv_normed", kv_lora_);
    const int kv = b.temporary("kv_up", {c.tokens, kv_up_.out});
    linear_forward(b, kv_up_, kv_in, kv);
    // The rotary part of the keys is one for all heads. Our own executor gathers it where tokens are split.
    const int shared = executed(c) ? tensor::enter(b, kv_compressed_, "kv_compressed", compressed_) : kv_compressed_;
    // RoPE writes queries, keys (rotary part repeated per head) and values as contiguous tensors.
    const double moved = 2.0 * static_cast<double>(c.width * c.tokens) * static_cast<double>(q_up_.out + kv_up_.out);
    if (c.ulysses == 1) {
      b.compute(Segment::rope, {q, kv, shared}, {core_.q, core_.k, core_.v}, {traffic(c, moved)});
      return;
    }
    const std::int64_t v_dim = c.model->latent->v_head_dim;
    const int qt = b.temporary("q.by_tokens", {c.tokens, c.heads * qk_});
    const int kt = b.temporary("k.by_tokens", {c.tokens, c.heads * qk_});
    const int vt = b.temporary("v.by_tokens", {c.tokens, c.heads * v_dim});
    b.compute(Segment::rope, {q, kv, shared}, {qt, kt, vt}, {traffic(c, moved)});
    b.collective(Collective::all_to_all, c.ring > 1 ? Group::cp_inner : Group::cp,
                 Bytes(c.tokens * c.heads * (2 * qk_ + v_dim) * c.width), {qt, kt, vt}, {core_.q, core_.k, core_.v});
  }

  void up_backward(BlockBuilder& b, const std::array<int, 3>& g) {
    const LayerContext& c = b.context();
    const double moved = 2.0 * static_cast<double>(c.width * c.tokens) * static_cast<double>(q_up_.out + kv_up_.out);
    const int grad_q = b.temporary("dq_up", {c.tokens, q_up_.out});
    const int grad_kv = b.temporary("dkv_up", {c.tokens, kv_up_.out});
    const int grad_rope = b.temporary("dk_rope", {c.tokens, compressed_ - kv_lora_});
    b.compute(Segment::rope, {g[0], g[1], g[2]}, {grad_q, grad_kv, grad_rope}, {traffic(c, moved)});
    // Each rank has the sum over its own heads.
    const int grad_shared =
        executed(c) ? tensor::leave_backward(b, grad_rope, "k_rope", compressed_ - kv_lora_) : grad_rope;

    const int q_in =
        needs_input(b, q_up_) ? tensor::enter(b, q_lora_ > 0 ? q_normed_ : kept_norm_, "q_normed", q_up_.in) : -1;
    const int grad_q_in = b.temporary("dq_normed", {c.tokens, q_up_.in});
    linear_input_gradient(b, q_up_, grad_q, grad_q_in);
    grad_q_share_ = tensor::leave_backward_with(b, grad_q_in, "q_normed", q_up_.in,
                                                [&] { linear_weight_gradient(b, q_up_, q_in, grad_q); });

    const int kv_in = needs_input(b, kv_up_) ? tensor::enter(b, kv_normed_, "kv_normed", kv_lora_) : -1;
    const int grad_kv_in = b.temporary("dkv_normed", {c.tokens, kv_lora_});
    linear_input_gradient(b, kv_up_, grad_kv, grad_kv_in);
    const int grad_kv_share = tensor::leave_backward_with(b, grad_kv_in, "kv_normed", kv_lora_,
                                                          [&] { linear_weight_gradient(b, kv_up_, kv_in, grad_kv); });
    grad_kv_ = b.temporary("dkv_compressed", {c.tokens_sp, compressed_});
    Op& norm = b.compute(Segment::norm, {kv_compressed_, grad_kv_share, grad_shared}, {grad_kv_},
                         {traffic(c, norm_bytes(c, kv_lora_, 3))});
    norm.weights = norm.weight_gradients = {kv_norm_};
  }

  void down_backward(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    grad_norm_ = b.temporary("dnorm1", {c.tokens_sp, h});
    if (needs_input(b, kv_down_) && recomputes(c, RecomputeModule::layernorm)) {
      repeat(b, norm_);
      recomputed(b, [&] { keep(b, kv_down_, norm_.output, kept_norm_); });
    }
    int grad_from_q = grad_q_share_;
    if (q_lora_ > 0) {
      const int grad_q = b.temporary("dq_compressed", {c.tokens_sp, q_lora_});
      Op& norm =
          b.compute(Segment::norm, {q_compressed_, grad_q_share_}, {grad_q}, {traffic(c, norm_bytes(c, q_lora_, 3))});
      norm.weights = norm.weight_gradients = {q_norm_};
      grad_from_q = b.temporary("dnorm1.from_q", {c.tokens_sp, h});
      linear_input_gradient(b, q_down_, grad_q, grad_from_q);
      linear_weight_gradient(b, q_down_, kept_norm_, grad_q);
    }
    const int grad_from_kv = b.temporary("dnorm1.from_kv", {c.tokens_sp, h});
    linear_input_gradient(b, kv_down_, grad_kv_, grad_from_kv);
    linear_weight_gradient(b, kv_down_, kept_norm_, grad_kv_);
    b.compute(Segment::residual, {grad_from_q, grad_from_kv}, {grad_norm_}, {traffic(c, norm_bytes(c, h, 3))});
  }

  [[nodiscard]] static bool executed(const LayerContext& c) {
    return c.semantics->family == SemanticsFamily::foretrain;
  }

  int window_;
  std::int64_t qk_ = 0;
  std::int64_t q_lora_ = 0;
  std::int64_t kv_lora_ = 0;
  std::int64_t compressed_ = 0;
  Norm norm_;
  AttentionCore core_;
  Linear q_down_, q_up_, kv_down_, kv_up_, out_;
  int kept_ = -1;      ///< input of the output projection as it stays
  int kept_norm_ = -1; ///< input of the down projections as it stays
  int q_compressed_ = -1, q_normed_ = -1, kv_compressed_ = -1, kv_normed_ = -1;
  int q_norm_ = -1, kv_norm_ = -1;
  int grad_q_share_ = -1, grad_kv_ = -1, grad_norm_ = -1;
};

} // namespace

std::unique_ptr<Half> make_latent_attention(int window) {
  return std::make_unique<LatentAttentionBlock>(window);
}

} // namespace foretrain::layers
