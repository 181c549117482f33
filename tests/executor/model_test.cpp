#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "executor/counter.h"
#include "executor/kernels/kernels.h"
#include "tests/executor/fixtures.h"

/// A whole model, written as one graph for LibTorch's autograd, against the Program interpreted op by op.
namespace foretrain {
namespace {

using namespace executor_fixtures;
using at::Tensor;

constexpr double kRounding = 1e-12; ///< relative, norm-wise; double

class Graph {
public:
  Graph(const ModelSpec& model, std::int64_t length, const std::map<std::string, Tensor>& weights)
      : model_(model), length_(length) {
    for (const auto& [name, weight] : weights) leaves_[name] = weight.clone().squeeze(-1).requires_grad_(true);
  }
  [[nodiscard]] const std::map<std::string, Tensor>& leaves() const { return leaves_; }

  /// Mean loss of one sequence, the `sequence`th of the batch.
  Tensor loss(std::int64_t sequence, const std::vector<std::int64_t>& tokens) const {
    const Tensor all = at::tensor(tokens, at::kLong);
    Tensor x = of("embedding").index_select(0, all.narrow(0, 0, length_));
    if (model_.learned_positions > 0) x = x + of("positions").narrow(0, 0, length_);
    for (int layer = 0; layer < model_.layers; ++layer) x = run_layer(x, sequence, layer);
    const auto nats = static_cast<double>(length_);
    return (cross_entropy(x, "final_norm", all, 1) + kMtpLossWeight * mtp_loss(x, sequence, all)) / nats;
  }

private:
  /// Sum over the tokens whose `ahead`th successor is of the sequence.
  [[nodiscard]] Tensor cross_entropy(const Tensor& x, const std::string& name, const Tensor& tokens,
                                     std::int64_t ahead) const {
    const Tensor table = of(model_.tied_embeddings ? "embedding" : "head");
    const Tensor logits = at::matmul(norm(x, name), table.t());
    const std::int64_t known = std::min(length_, tokens.size(0) - ahead);
    const Tensor chosen =
        at::log_softmax(logits, -1).narrow(0, 0, known).gather(1, tokens.narrow(0, ahead, known).unsqueeze(1));
    return -chosen.sum();
  }
  /// DeepSeek-V3 (arXiv:2412.19437), equations 21 to 24, one token more.
  [[nodiscard]] Tensor mtp_loss(const Tensor& x, std::int64_t sequence, const Tensor& tokens) const {
    if (model_.mtp_layers == 0) return at::zeros({}, at::kDouble);
    const std::string name = "layers." + std::to_string(model_.layers) + ".mtp.";
    const Tensor next = of("embedding").index_select(0, tokens.narrow(0, 1, length_));
    const Tensor joined = at::cat({norm(x, name + "norm_hidden"), norm(next, name + "norm_embedded")}, 1);
    const Tensor state = run_layer(linear(joined, name + "projection"), sequence, model_.layers);
    return cross_entropy(state, name + "final_norm", tokens, 2);
  }
  [[nodiscard]] Tensor of(const std::string& name) const { return leaves_.at(name); }
  [[nodiscard]] Tensor linear(const Tensor& x, const std::string& name) const {
    const Tensor y = at::matmul(x, of(name).t());
    return leaves_.count(name + ".bias") ? y + of(name + ".bias") : y;
  }
  [[nodiscard]] Tensor norm(const Tensor& x, const std::string& name) const {
    if (model_.norm == NormKind::layer)
      return at::layer_norm(x, {x.size(-1)}, of(name), of(name + ".bias"), kernels::kNormEpsilon);
    return x * (x.square().mean(-1, true) + kernels::kNormEpsilon).rsqrt() * of(name);
  }
  [[nodiscard]] Tensor turned(const Tensor& heads) const { // [heads, length, width]
    if (model_.learned_positions > 0) return heads;
    const std::int64_t half = heads.size(-1) / 2;
    const Tensor frequency = at::pow(at::full({half}, kernels::kRopeBase, at::kDouble),
                                     at::arange(half, at::kDouble) * (-2.0 / static_cast<double>(heads.size(-1))));
    const Tensor angle = at::arange(length_, at::kDouble).unsqueeze(1) * frequency;
    const Tensor a = heads.narrow(-1, 0, half);
    const Tensor b = heads.narrow(-1, half, half);
    return at::cat({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, -1);
  }
  /// q, k, v: [heads, length, width].
  [[nodiscard]] Tensor mixed(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const Tensor mask = at::ones({length_, length_}, at::kDouble).tril().log();
    const Tensor scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(-1)));
    return at::matmul(at::softmax(scores + mask, -1), v).transpose(0, 1).reshape({length_, -1});
  }
  /// Rows of heads as [length, heads, width], normed over each head (Qwen3) or over all (OLMoE) where the model does.
  [[nodiscard]] Tensor of_heads(const Tensor& rows, const std::string& norm_name, std::int64_t count) const {
    const bool normed = !norm_name.empty() && model_.qk_norm != QkNorm::none;
    const bool over_all = normed && model_.qk_norm == QkNorm::full_width;
    const Tensor heads = (over_all ? norm(rows, norm_name) : rows).reshape({length_, count, model_.head_dim});
    return normed && !over_all ? norm(heads, norm_name) : heads;
  }
  [[nodiscard]] Tensor attention(const Tensor& x, const std::string& at_layer) const {
    const std::int64_t d = model_.head_dim;
    const Tensor qkv = linear(x, at_layer + "qkv");
    const auto part = [&](std::int64_t first, std::int64_t count, const std::string& norm) {
      const Tensor rows = qkv.narrow(1, first * d, count * d);
      return of_heads(rows, norm.empty() ? "" : at_layer + norm, count).transpose(0, 1);
    };
    const std::int64_t repeat = model_.heads / model_.kv_heads;
    return mixed(turned(part(0, model_.heads, "q_norm")),
                 turned(part(model_.heads, model_.kv_heads, "k_norm")).repeat_interleave(repeat, 0),
                 part(model_.heads + model_.kv_heads, model_.kv_heads, "").repeat_interleave(repeat, 0));
  }
  [[nodiscard]] Tensor latent_attention(const Tensor& x, const std::string& at_layer) const {
    const LatentAttention& mla = *model_.latent;
    const std::int64_t heads = model_.heads;
    const auto by_heads = [&](const Tensor& rows) { return rows.view({length_, heads, -1}).transpose(0, 1); };
    const Tensor q = by_heads(linear(norm(linear(x, at_layer + "q_down"), at_layer + "q_norm"), at_layer + "q_up"));
    const Tensor compressed = linear(x, at_layer + "kv_down");
    const Tensor kv =
        by_heads(linear(norm(compressed.narrow(1, 0, mla.kv_lora_rank), at_layer + "kv_norm"), at_layer + "kv_up"));
    const Tensor shared = turned(compressed.narrow(1, mla.kv_lora_rank, mla.qk_rope_head_dim).unsqueeze(0));
    const std::int64_t plain = mla.qk_nope_head_dim;
    const Tensor queries = at::cat({q.narrow(-1, 0, plain), turned(q.narrow(-1, plain, mla.qk_rope_head_dim))}, -1);
    const Tensor keys = at::cat({kv.narrow(-1, 0, plain), shared.expand({heads, -1, -1})}, -1);
    return mixed(queries, keys, kv.narrow(-1, plain, mla.v_head_dim));
  }
  [[nodiscard]] Tensor hidden(const Tensor& up) const {
    if (!model_.gated) return at::gelu(up);
    const std::int64_t width = up.size(1) / 2;
    return at::silu(up.narrow(1, 0, width)) * up.narrow(1, width, width);
  }
  [[nodiscard]] Tensor feed_forward(const Tensor& x, const std::string& name) const {
    return linear(hidden(linear(x, name + "_up")), name + "_down");
  }
  /// Every expert on every token, weighted: 0 where it is not chosen.
  [[nodiscard]] Tensor experts(const Tensor& x, const std::string& at_layer, std::int64_t sequence) const {
    const MoeSpec& moe = *model_.moe;
    const Tensor logits = linear(x, at_layer + "router");
    Tensor chosen = at::full({length_, moe.experts}, -std::numeric_limits<double>::infinity(), at::kDouble);
    for (std::int64_t row = 0; row < length_; ++row)
      for (std::int64_t i = 0; i < moe.top_k; ++i)
        chosen[row][((sequence * length_ + row) * moe.top_k + i) % moe.experts] = 0;
    const Tensor weights = at::softmax(logits + chosen, -1);
    const Tensor up = of(at_layer + "expert_up").view({moe.experts, -1, model_.hidden});
    const Tensor down = of(at_layer + "expert_down").view({moe.experts, model_.hidden, -1});
    Tensor sum = moe.shared_ffn > 0 ? feed_forward(x, at_layer + "shared") : at::zeros_like(x);
    for (std::int64_t e = 0; e < moe.experts; ++e)
      sum = sum + weights.narrow(1, e, 1) * at::matmul(hidden(at::matmul(x, up[e].t())), down[e].t());
    return sum;
  }
  [[nodiscard]] Tensor run_layer(const Tensor& x, std::int64_t sequence, int layer) const {
    const std::string at_layer = "layers." + std::to_string(layer) + ".";
    const Tensor in = norm(x, at_layer + "norm1");
    const Tensor attended = model_.latent ? latent_attention(in, at_layer) : attention(in, at_layer);
    const Tensor middle = x + linear(attended, at_layer + "attention_out");
    const Tensor normed = norm(middle, at_layer + "norm2");
    const LayerShape shape =
        layer < model_.layers ? layer_shapes(model_)[static_cast<std::size_t>(layer)] : mtp_shape(model_);
    const bool moe = shape.feed_forward == FeedForward::moe;
    return middle + (moe ? experts(normed, at_layer, sequence) : feed_forward(normed, at_layer + "ffn"));
  }

  const ModelSpec& model_;
  std::int64_t length_;
  std::map<std::string, Tensor> leaves_;
};

void compare(const ModelSpec& model) {
  Layout layout;
  layout.sharding.kind = ShardingKind::none;
  const Plan plan = plan_of(model, layout);
  OptimizerOptions frozen;
  frozen.learning_rate = 0; // the weights after the step are those before it
  const RunOutcome outcome = run_threads(plan, 1, frozen);

  const Graph graph(model, plan.job.sequence_length, outcome.weights);
  Tensor loss = at::zeros({}, at::kDouble);
  for (std::int64_t sequence = 0; sequence < plan.job.global_batch; ++sequence)
    loss = loss +
           graph.loss(sequence, counter::tokens(RankOptions{}.seed, sequence, plan.job.sequence_length, model.vocab)) /
               static_cast<double>(plan.job.global_batch);
  loss.backward();

  double total = outcome.losses.front();
  for (const StepRecord& record : outcome.records.front()) total += kMtpLossWeight * record.mtp_loss.value_or(0);
  EXPECT_NEAR(total / loss.item<double>(), 1, kRounding);
  for (const auto& [name, leaf] : graph.leaves()) {
    const Tensor gradient = outcome.gradients.front().at(name).view(leaf.sizes());
    EXPECT_LT(distance(gradient, leaf.grad()), kRounding) << name;
  }
}

TEST(WholeModel, LlamaLikeEqualsAutograd) {
  compare(llama_like());
}
TEST(WholeModel, LlamaLikeWithTiedTableEqualsAutograd) {
  compare(llama_like(true));
}
TEST(WholeModel, GptLikeEqualsAutograd) {
  compare(gpt_like());
}
TEST(WholeModel, MixtralLikeEqualsAutograd) {
  compare(mixtral_like());
}
TEST(WholeModel, DeepseekLikeEqualsAutograd) {
  compare(deepseek_like());
}
TEST(WholeModel, NormsOfQueriesAndKeysEqualAutograd) {
  compare(qwen3_like());
  compare(olmoe_like());
  for (const QkNorm norm : {QkNorm::per_head, QkNorm::full_width}) {
    ModelSpec gpt = gpt_like(); // biases, no rotary positions
    gpt.norm = NormKind::rms; // a bias of normed keys would have no gradient: it adds the same to all scores of a query
    gpt.qk_norm = norm;
    compare(gpt);
    ModelSpec layer_norm = qwen3_like();
    layer_norm.norm = NormKind::layer;
    layer_norm.qk_norm = norm;
    compare(layer_norm);
  }
  compare(with_mtp(qwen3_like()));
}
TEST(WholeModel, MultiTokenPredictionEqualsAutograd) {
  compare(with_mtp(llama_like()));
  compare(with_mtp(llama_like(true)));
  ModelSpec layer_norm = with_mtp(llama_like());
  layer_norm.norm = NormKind::layer;
  compare(layer_norm);
  compare(deepseek_mtp_like());
}

} // namespace
} // namespace foretrain
