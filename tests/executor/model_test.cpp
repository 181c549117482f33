#include <cmath>
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

  /// Mean loss of one sequence.
  Tensor loss(const std::vector<std::int64_t>& tokens) const {
    const Tensor all = at::tensor(tokens, at::kLong);
    Tensor x = of("embedding").index_select(0, all.narrow(0, 0, length_));
    if (model_.learned_positions > 0) x = x + of("positions").narrow(0, 0, length_);
    for (int layer = 0; layer < model_.layers; ++layer) x = run_layer(x, "layers." + std::to_string(layer) + ".");
    const Tensor table = of(model_.tied_embeddings ? "embedding" : "head");
    const Tensor logits = at::matmul(norm(x, "final_norm"), table.t());
    return -at::log_softmax(logits, -1).gather(1, all.narrow(0, 1, length_).unsqueeze(1)).mean();
  }

private:
  [[nodiscard]] Tensor of(const std::string& name) const { return leaves_.at(name); }
  [[nodiscard]] Tensor linear(const Tensor& x, const std::string& name) const {
    const Tensor y = at::matmul(x, of(name).t());
    return leaves_.count(name + ".bias") ? y + of(name + ".bias") : y;
  }
  [[nodiscard]] Tensor norm(const Tensor& x, const std::string& name) const {
    if (model_.norm == NormKind::layer)
      return at::layer_norm(x, {model_.hidden}, of(name), of(name + ".bias"), kernels::kNormEpsilon);
    return x * (x.square().mean(-1, true) + kernels::kNormEpsilon).rsqrt() * of(name);
  }
  [[nodiscard]] Tensor turned(const Tensor& heads) const { // [heads, length, width]
    if (model_.learned_positions > 0) return heads;
    const std::int64_t half = model_.head_dim / 2;
    const Tensor frequency = at::pow(at::full({half}, kernels::kRopeBase, at::kDouble),
                                     at::arange(half, at::kDouble) * (-2.0 / model_.head_dim));
    const Tensor angle = at::arange(length_, at::kDouble).unsqueeze(1) * frequency;
    const Tensor a = heads.narrow(-1, 0, half);
    const Tensor b = heads.narrow(-1, half, half);
    return at::cat({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, -1);
  }
  [[nodiscard]] Tensor run_layer(const Tensor& x, const std::string& at_layer) const {
    const std::int64_t d = model_.head_dim;
    const Tensor qkv = linear(norm(x, at_layer + "norm1"), at_layer + "qkv");
    const auto part = [&](std::int64_t first, std::int64_t count) {
      return qkv.narrow(1, first * d, count * d).reshape({length_, count, d}).transpose(0, 1);
    };
    const std::int64_t repeat = model_.heads / model_.kv_heads;
    const Tensor q = turned(part(0, model_.heads));
    const Tensor k = turned(part(model_.heads, model_.kv_heads)).repeat_interleave(repeat, 0);
    const Tensor v = part(model_.heads + model_.kv_heads, model_.kv_heads).repeat_interleave(repeat, 0);
    const Tensor mask = at::ones({length_, length_}, at::kDouble).tril().log();
    const Tensor weights =
        at::softmax(at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(d)) + mask, -1);
    const Tensor mixed = at::matmul(weights, v).transpose(0, 1).reshape({length_, -1});
    const Tensor middle = x + linear(mixed, at_layer + "attention_out");
    const Tensor up = linear(norm(middle, at_layer + "norm2"), at_layer + "ffn_up");
    const Tensor hidden =
        model_.gated ? at::silu(up.narrow(1, 0, model_.ffn)) * up.narrow(1, model_.ffn, model_.ffn) : at::gelu(up);
    return middle + linear(hidden, at_layer + "ffn_down");
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
    loss = loss + graph.loss(counter::tokens(RankOptions{}.seed, sequence, plan.job.sequence_length, model.vocab)) /
                      static_cast<double>(plan.job.global_batch);
  loss.backward();

  EXPECT_NEAR(outcome.losses.front() / loss.item<double>(), 1, kRounding);
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

} // namespace
} // namespace foretrain
