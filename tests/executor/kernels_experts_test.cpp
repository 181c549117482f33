#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "executor/kernels/kernel_set.h"

/// Kernels of experts and of latent attention against LibTorch's autograd of the plain formula, in double.
namespace foretrain::kernels {
namespace {

/// ‖a − b‖ / ‖b‖ in double: rounding of sums of some hundred terms.
constexpr double kRounding = 1e-12;

Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble);
}
Tensor leaf(const Tensor& tensor) {
  return tensor.clone().requires_grad_(true);
}
void expect_same(const Tensor& got, const Tensor& expected, const char* what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_LE((got - expected).norm().item<double>(), kRounding * expected.norm().item<double>()) << what;
}

constexpr std::int64_t kTokens = 7;
constexpr std::int64_t kHidden = 6;
constexpr std::int64_t kExperts = 5;
constexpr std::int64_t kVisits = 2;
constexpr std::int64_t kWidth = 4;

class ExpertKernels : public testing::TestWithParam<const KernelSet*> {
protected:
  void SetUp() override { at::manual_seed(11); }
  const KernelSet& set_ = *GetParam();
};

/// A layer of experts from the norm's output to the sum over a token's experts, op by op.
struct Layer {
  explicit Layer(const KernelSet& kernels) : set(kernels) {}

  const KernelSet& set;
  Tensor x, router, up, down;
  bool gated = true;
  Tensor weights = at::empty({kTokens, kVisits}, at::kDouble);
  Tensor choice = at::empty({kTokens, kVisits}, at::kLong);
  Tensor rows = at::empty({kTokens * kVisits, kHidden}, at::kDouble);
  Tensor row_weights = at::empty({kTokens * kVisits}, at::kDouble);
  Tensor up_out, hidden;
  SortedCopies copies;

  Tensor forward() {
    set.route(x, router, {}, weights, choice);
    copies = set.sort_copies(choice, 0, kExperts);
    set.copy_to_rows(x, copies, kVisits, rows);
    set.copy_weights(weights, copies, row_weights);
    up_out = at::empty({rows.size(0), up.size(1)}, at::kDouble);
    hidden = at::empty({rows.size(0), kWidth}, at::kDouble);
    Tensor out = at::empty({rows.size(0), kHidden}, at::kDouble);
    Tensor sum = at::empty({kTokens, kHidden}, at::kDouble);
    expert_linear(rows, up, copies.per_expert, up_out);
    set.weighted_activation(up_out, row_weights, gated, hidden);
    expert_linear(hidden, down, copies.per_expert, out);
    set.sum_copies(out, copies, kVisits, sum);
    return sum;
  }
  struct Gradients {
    Tensor dx, drouter, dup, ddown;
  };
  Gradients backward(const Tensor& dy) {
    Gradients g{at::empty({kTokens, kHidden}, at::kDouble), at::zeros_like(router), at::zeros_like(up),
                at::zeros_like(down)};
    Tensor dout = at::empty_like(rows);
    Tensor dhidden = at::empty_like(hidden);
    Tensor dup_out = at::empty_like(up_out);
    Tensor drows = at::empty_like(rows);
    Tensor drow_weights = at::empty_like(row_weights);
    Tensor dweights = at::empty_like(weights);
    Tensor dlogits = at::empty({kTokens, kExperts}, at::kDouble);
    set.copy_to_rows(dy, copies, kVisits, dout);
    expert_input_gradient(dout, down, copies.per_expert, dhidden);
    expert_weight_gradient(hidden, dout, copies.per_expert, g.ddown);
    set.weighted_activation_backward(up_out, row_weights, dhidden, gated, dup_out, drow_weights);
    expert_input_gradient(dup_out, up, copies.per_expert, drows);
    expert_weight_gradient(rows, dup_out, copies.per_expert, g.dup);
    set.sum_copies(drows, copies, kVisits, g.dx);
    set.return_weights(drow_weights, copies, dweights);
    set.route_backward(weights, choice, dweights, dlogits);
    add_router_input_gradient(dlogits, router, g.dx);
    add_router_weight_gradient(x, dlogits, g.drouter);
    return g;
  }
};

TEST_P(ExpertKernels, ALayerEqualsAutograd) {
  for (const bool gated : {true, false}) {
    const Tensor x = leaf(random({kTokens, kHidden}));
    const Tensor router = leaf(random({kExperts, kHidden}));
    const Tensor up = leaf(random({kExperts, (gated ? 2 : 1) * kWidth, kHidden}));
    const Tensor down = leaf(random({kExperts, kHidden, kWidth}));
    const Tensor dy = random({kTokens, kHidden});
    const Tensor logits = at::matmul(x, router.t());
    const Tensor best = std::get<1>(logits.topk(kVisits, -1));
    const Tensor shares = at::softmax(logits.gather(1, best), -1);
    const Tensor weights = at::zeros({kTokens, kExperts}, at::kDouble).scatter(1, best, shares);
    Tensor expected = at::zeros({kTokens, kHidden}, at::kDouble);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const Tensor u = at::matmul(x, up[e].t());
      const Tensor h = gated ? at::silu(u.narrow(1, 0, kWidth)) * u.narrow(1, kWidth, kWidth) : at::gelu(u);
      expected = expected + weights.narrow(1, e, 1) * at::matmul(h, down[e].t());
    }
    expected.backward(dy);

    const c10::NoGradGuard guard;
    Layer layer(set_);
    layer.x = x;
    layer.router = router;
    layer.up = up;
    layer.down = down;
    layer.gated = gated;
    expect_same(layer.forward(), expected, "y");
    const Layer::Gradients g = layer.backward(dy);
    expect_same(g.dx, x.grad(), "dx");
    expect_same(g.drouter, router.grad(), "drouter");
    expect_same(g.dup, up.grad(), "dup");
    expect_same(g.ddown, down.grad(), "ddown");
  }
}

TEST_P(ExpertKernels, CopiesStandByExpertsAndWithinOneByTokens) {
  const Tensor choice = at::tensor(std::vector<std::int64_t>{2, 0, 1, 2, 0, 3}, at::kLong).view({3, 2});
  const SortedCopies all = set_.sort_copies(choice, 0, 4);
  EXPECT_EQ(all.order, (std::vector<std::int64_t>{1, 4, 2, 0, 3, 5}));
  EXPECT_EQ(all.per_expert, (std::vector<std::int64_t>{2, 1, 2, 1}));
  const SortedCopies some = set_.sort_copies(choice, 2, 2);
  EXPECT_EQ(some.order, (std::vector<std::int64_t>{0, 3, 5}));
}

TEST_P(ExpertKernels, LatentNormEqualsAutograd) {
  const Tensor x = leaf(random({5, 8}));
  const Tensor weight = leaf(random({6}));
  const Tensor dy = random({5, 6});
  const Tensor rest = random({5, 2});
  const Tensor first = x.narrow(1, 0, 6);
  const Tensor expected = first * (first.square().mean(-1, true) + kNormEpsilon).rsqrt() * weight;
  ((expected * dy).sum() + (x.narrow(1, 6, 2) * rest).sum()).backward();

  const c10::NoGradGuard guard;
  Tensor y = at::empty_like(dy);
  Tensor dx = at::empty({5, 8}, at::kDouble);
  Tensor dweight = at::ones({6}, at::kDouble); // a gradient is added, never overwritten
  set_.latent_norm(x, weight, y);
  set_.latent_norm_backward(x, weight, dy, &rest, dx, dweight);
  expect_same(y, expected, "y");
  expect_same(dx, x.grad(), "dx");
  expect_same(dweight - 1, weight.grad(), "dweight");
}

INSTANTIATE_TEST_SUITE_P(All, ExpertKernels, testing::Values(&host_kernels(), &tensor_kernels()),
                         [](const auto& one) { return one.param == &host_kernels() ? "host" : "tensors"; });

} // namespace
} // namespace foretrain::kernels
