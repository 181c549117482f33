#include "core/program/layers/attention.h"

#include "core/program/axes/tensor.h"
#include "core/program/layers/linear.h"
#include "core/program/layers/qk_norm.h"

namespace foretrain::layers {
namespace {

/// norm → QKV → norms of queries and keys → RoPE → core → output projection, as Megatron-Core with TransformerEngine
/// orders it.
class GroupedQueryAttention final : public Half {
public:
  GroupedQueryAttention(int window, bool reduces) : window_(window), reduces_(reduces) {}

  [[nodiscard]] std::string_view name() const override { return "attention_out"; }
  [[nodiscard]] bool takes_quantised(const LayerContext& c) const override {
    return quantises_norm(c, AdapterTarget::qkv);
  }

  std::vector<int> forward(BlockBuilder& b, const Norm& norm) override {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    norm_ = norm;
    core_ = declare_core(b, AttentionWidths{c.heads, c.kv_heads, c.model->head_dim, c.model->head_dim, window_});
    declare_parameters(b);
    kept_ = kept_buffer(b, out_, core_.out, true);
    emit_until_core(b);
    const bool again = b.pass() == Pass::recompute;
    if (!(again && keeps_output(c, KeptOutput::attention))) core_forward(b, core_);
    keep(b, out_, core_.out, kept_);
    const int partial = b.temporary("attention_out", {c.tokens, h});
    const std::int64_t kept = keeps_output(c, KeptOutput::attention_out) ? h : 0;
    if (reduces_) return {row_forward(b, out_, kept_, partial, "attention_out", kept)};
    forward_keeping(b, out_, kept_, partial, kept);
    return {partial};
  }

  int backward(BlockBuilder& b, int grad) override {
    const LayerContext& c = b.context();
    const std::int64_t h = c.model->hidden;
    const tensor::Entry entry =
        reduces_ ? begin_row_backward(b, out_, grad, "attention_out") : tensor::Entry{grad, grad, false};
    const int grad_core = b.temporary("dattention", {c.tokens, out_.in});
    row_input_gradient(b, out_, entry, grad_core);
    linear_weight_gradient(b, out_, kept_, entry.whole);
    const std::array<int, 3> g = core_backward(b, recompute_core(b, core_), grad_core);
    const int grad_qkv = b.temporary("dqkv", {c.tokens, qkv_.out});
    rope_backward(b, g, grad_qkv);
    const bool reads_norm = needs_input(b, qkv_);
    if (reads_norm && recomputes(c, RecomputeModule::layernorm)) repeat(b, norm_);
    const int grad_norm = b.temporary("dnorm1", {c.tokens, h});
    const int gathered = reads_norm ? tensor::enter_again(b, norm_.output, "norm1", h) : -1;
    linear_input_gradient(b, qkv_, grad_qkv, grad_norm);
    return tensor::leave_backward_with(b, grad_norm, "norm1", h,
                                       [&] { linear_weight_gradient(b, qkv_, gathered, grad_qkv); });
  }

private:
  void declare_parameters(BlockBuilder& b) {
    const LayerContext& c = b.context();
    const ModelSpec& m = *c.model;
    const std::int64_t h = m.hidden;
    const std::int64_t d = m.head_dim;
    const std::int64_t gate = m.output_gate ? std::int64_t{m.heads} * d : 0;
    const std::int64_t gate_local = m.output_gate ? std::int64_t{c.heads} * d : 0;
    const std::int64_t whole = (std::int64_t{m.heads} + 2 * m.kv_heads) * d + gate;
    const std::int64_t local = (std::int64_t{c.heads} + 2 * c.kv_heads) * d + gate_local;
    qkv_ =
        declare_linear(b, Segment::qkv, {"qkv", {whole, h}, {local, h}}, c.tokens, Split::columns, AdapterTarget::qkv);
    if (m.qkv_bias) b.parameter({"qkv.bias", {whole}, {local}, false, false});
    const std::int64_t inner = std::int64_t{c.heads} * d;
    out_ = declare_linear(b, Segment::attention_out, {"attention_out", {h, std::int64_t{m.heads} * d}, {h, inner}},
                          c.tokens, Split::rows, AdapterTarget::attention_out);
    if (m.out_bias) b.parameter({"attention_out.bias", {h}, {h}, false, true});
    q_norm_ = declare_qk_norm(b, "q", m.heads, c.heads);
    k_norm_ = declare_qk_norm(b, "k", m.kv_heads, c.kv_heads);
    if (m.attention_sinks) b.parameter({"sinks", {m.heads}, {c.heads}, false, false});
  }

  void emit_until_core(BlockBuilder& b) {
    const LayerContext& c = b.context();
    lead(b, norm_);
    const tensor::Entry entry = begin_column(b, qkv_, norm_.output, "norm1");
    const bool views = values_are_views(c);
    const std::vector<std::int64_t> joint = {c.tokens, qkv_.out};
    const int mixed = views ? b.activation("qkv", joint) : b.temporary("qkv", joint);
    if (views) core_.v = mixed;
    const std::int64_t d = c.model->head_dim;
    std::int64_t kept = 0;
    if (keeps_output(c, KeptOutput::query)) kept += c.heads * d;
    if (keeps_output(c, KeptOutput::key)) kept += c.kv_heads * d;
    if (keeps_output(c, KeptOutput::value)) kept += c.kv_heads * d;
    column_forward(b, qkv_, entry, mixed, kept);
    qk_norm_forward(b, q_norm_, mixed);
    qk_norm_forward(b, k_norm_, mixed);
    rope_forward(b, mixed);
  }

  /// Values stay where the projection wrote them, unless batched products of several sequences need a copy.
  [[nodiscard]] static bool values_are_views(const LayerContext& c) {
    const bool copies = c.job->attention != AttentionKernel::flash && c.layout.micro_batch > 1;
    return c.semantics->value_in_mixed && c.ulysses == 1 && !copies;
  }

  /// Splits QKV and applies RoPE, to what the norms made of queries and keys where there are norms; with Ulysses the
  /// three go through one all-to-all.
  void rope_forward(BlockBuilder& b, int mixed) {
    const LayerContext& c = b.context();
    std::vector<int> reads = {mixed};
    if (!q_norm_.weights.empty()) reads.insert(reads.end(), {q_norm_.output, k_norm_.output});
    if (c.ulysses == 1) {
      std::vector<int> writes = {core_.q, core_.k};
      if (core_.v != mixed) writes.push_back(core_.v);
      b.compute(Segment::rope, std::move(reads), std::move(writes), {traffic(c, rope_bytes(c, true))});
      return;
    }
    const std::int64_t d = c.model->head_dim;
    const int q = b.temporary("q.by_tokens", {c.tokens, c.heads * d});
    const int k = b.temporary("k.by_tokens", {c.tokens, c.kv_heads * d});
    const int v = b.temporary("v.by_tokens", {c.tokens, c.kv_heads * d});
    b.compute(Segment::rope, reads, {q, k, v}, {traffic(c, rope_bytes(c, true))});
    b.collective(Collective::all_to_all, c.ring > 1 ? Group::cp_inner : Group::cp,
                 Bytes(c.tokens * (std::int64_t{c.heads} + 2 * c.kv_heads) * d * c.width), {q, k, v},
                 {core_.q, core_.k, core_.v});
  }

  /// To the gradient of QKV, through the norms where there are any.
  void rope_backward(BlockBuilder& b, const std::array<int, 3>& g, int grad_qkv) {
    const LayerContext& c = b.context();
    std::vector<int> writes = {grad_qkv};
    const bool normed = !q_norm_.weights.empty();
    const int grad_q = normed ? b.temporary("dq.normed", {c.tokens, q_norm_.columns}) : -1;
    const int grad_k = normed ? b.temporary("dk.normed", {c.tokens, k_norm_.columns}) : -1;
    if (normed) writes.insert(writes.end(), {grad_q, grad_k});
    b.compute(Segment::rope, {g[0], g[1], g[2]}, std::move(writes), {traffic(c, rope_bytes(c, false))});
    qk_norm_backward(b, q_norm_, grad_q, grad_qkv);
    qk_norm_backward(b, k_norm_, grad_k, grad_qkv);
  }

  /// Fused: QKV read and written once. In eager operators, passes over each query and key: half of it negated (1) and
  /// joined (2), times cosine and sine (4), summed (3); backward the two products (4), the joint's halves negated,
  /// padded and copied (5), three gradients summed (6) (Aleph-Alpha/scaling@78489292b core/nn/rotary.py). Values are
  /// views there.
  [[nodiscard]] double rope_bytes(const LayerContext& c, bool forward) const {
    const double passes = static_cast<double>(c.width * c.tokens);
    if (!eager_operators(c)) return 2 * passes * static_cast<double>(qkv_.out);
    const std::int64_t rotated = (std::int64_t{c.heads} + c.kv_heads) * c.model->head_dim;
    return (forward ? 10 : 15) * passes * static_cast<double>(rotated);
  }

  int window_;
  bool reduces_;
  Norm norm_;
  AttentionCore core_;
  int kept_ = -1; ///< input of the output projection as it stays
  Linear qkv_;
  Linear out_;
  QueryKeyNorm q_norm_, k_norm_;
};

} // namespace

std::unique_ptr<Half> make_attention(int window, bool reduces) {
  return std::make_unique<GroupedQueryAttention>(window, reduces);
}

} // namespace foretrain::layers
