#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "executor/kernels/kernels.h"

/// Hand-written gradients against LibTorch's autograd of the plain formula, in double.
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

class Kernels : public testing::Test {
protected:
  void SetUp() override { at::manual_seed(7); }
};

TEST_F(Kernels, NormsEqualAutograd) {
  for (const bool layer : {false, true}) {
    const Tensor x = leaf(random({6, 8}));
    const Tensor weight = leaf(random({8}));
    const Tensor bias = leaf(random({8}));
    const Tensor dy = random({6, 8});
    const Tensor residual = random({6, 8});
    const Tensor centred = layer ? x - x.mean(-1, true) : x;
    Tensor expected = centred / (centred.square().mean(-1, true) + kNormEpsilon).sqrt() * weight;
    if (layer) expected = expected + bias;
    expected.backward(dy);

    const at::NoGradGuard guard;
    Tensor y = at::empty_like(dy);
    Tensor statistics = at::empty({layer ? 2 : 1, 6}, at::kDouble);
    norm(x, weight, layer ? &bias : nullptr, y, statistics);
    Tensor dx = at::empty_like(dy);
    Tensor dweight = at::ones({8}, at::kDouble); // a gradient is added, never overwritten
    Tensor dbias = at::ones({8}, at::kDouble);
    norm_backward(x, statistics, weight, dy, &residual, dx, dweight, layer ? &dbias : nullptr);
    expect_same(y, expected, "y");
    expect_same(dx - residual, x.grad(), "dx");
    expect_same(dweight - 1, weight.grad(), "dweight");
    if (layer) expect_same(dbias - 1, bias.grad(), "dbias");
  }
}

TEST_F(Kernels, LinearEqualsAutograd) {
  const Tensor x = leaf(random({6, 8}));
  const Tensor weight = leaf(random({5, 8}));
  const Tensor bias = leaf(random({5}));
  const Tensor dy = random({6, 5});
  const Tensor expected = at::mm(x, weight.t()) + bias;
  expected.backward(dy);

  const at::NoGradGuard guard;
  Tensor y = at::empty_like(dy);
  Tensor dx = at::empty({6, 8}, at::kDouble);
  Tensor dweight = at::ones({5, 8}, at::kDouble);
  Tensor dbias = at::ones({5}, at::kDouble);
  linear(x, weight, &bias, y);
  linear_input_gradient(dy, weight, dx);
  linear_weight_gradient(x, dy, dweight, &dbias);
  expect_same(y, expected, "y");
  expect_same(dx, x.grad(), "dx");
  expect_same(dweight - 1, weight.grad(), "dweight");
  expect_same(dbias - 1, bias.grad(), "dbias");
}

/// RoPE by complex numbers: coordinates i and i + width/2 of a head are one number, turned by position ·
/// base^(−2i/width).
Tensor turned(const Tensor& rows, std::int64_t count, const Heads& heads) {
  const std::int64_t half = heads.width / 2;
  const Tensor x = rows.view({-1, heads.length, count, 2, half});
  const Tensor frequency = at::pow(at::full({half}, kRopeBase, at::kDouble),
                                   at::arange(half, at::kDouble) * (-2.0 / static_cast<double>(heads.width)));
  const Tensor angle = at::arange(heads.length, at::kDouble).view({-1, 1, 1}) * frequency;
  const Tensor real = x.select(3, 0) * angle.cos() - x.select(3, 1) * angle.sin();
  const Tensor imaginary = x.select(3, 0) * angle.sin() + x.select(3, 1) * angle.cos();
  return at::cat({real, imaginary}, -1).view({rows.size(0), -1});
}

TEST_F(Kernels, RopeEqualsAutograd) {
  const Heads heads{5, 4, 2, 6, 0};
  const Tensor qkv = leaf(random({10, 8 * 6}));
  const Tensor dq = random({10, 24});
  const Tensor dk = random({10, 12});
  const Tensor dv = random({10, 12});
  const Tensor q = turned(qkv.narrow(1, 0, 24).contiguous(), 4, heads);
  const Tensor k = turned(qkv.narrow(1, 24, 12).contiguous(), 2, heads);
  const Tensor v = qkv.narrow(1, 36, 12);
  ((q * dq).sum() + (k * dk).sum() + (v * dv).sum()).backward();

  const at::NoGradGuard guard;
  Tensor mine_q = at::empty_like(dq);
  Tensor mine_k = at::empty_like(dk);
  Tensor mine_v = at::empty_like(dv);
  Tensor dqkv = at::empty({10, 48}, at::kDouble);
  rope(qkv, heads, true, mine_q, mine_k, mine_v);
  rope_backward(dq, dk, dv, heads, true, dqkv);
  expect_same(mine_q, q, "q");
  expect_same(mine_k, k, "k");
  expect_same(mine_v, v, "v");
  expect_same(dqkv, qkv.grad(), "dqkv");
}

/// Attention with keys and values repeated for each query head, one head at a time.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Heads& heads, Tensor& logsumexp) {
  const auto by_heads = [&](const Tensor& rows, std::int64_t count) {
    return rows.view({-1, heads.length, count, heads.width}).transpose(1, 2);
  };
  const Tensor keys = by_heads(k, heads.kv).repeat_interleave(heads.query / heads.kv, 1);
  const Tensor values = by_heads(v, heads.kv).repeat_interleave(heads.query / heads.kv, 1);
  Tensor mask = at::ones({heads.length, heads.length}, at::kDouble).tril();
  if (heads.window > 0) mask = mask - at::ones({heads.length, heads.length}, at::kDouble).tril(-heads.window);
  const Tensor scores =
      at::matmul(by_heads(q, heads.query), keys.transpose(-1, -2)) / std::sqrt(static_cast<double>(heads.width)) +
      mask.log();
  logsumexp = at::logsumexp(scores, {-1}).transpose(1, 2).reshape({-1, heads.query});
  return at::matmul(at::softmax(scores, -1), values).transpose(1, 2).reshape({q.size(0), -1});
}

TEST_F(Kernels, AttentionEqualsAutograd) {
  for (const Heads& heads : {Heads{5, 4, 4, 6, 0}, Heads{5, 4, 2, 6, 0}, Heads{5, 4, 1, 6, 0}, Heads{7, 4, 2, 6, 3}}) {
    const std::int64_t rows = 2 * heads.length;
    const Tensor q = leaf(random({rows, heads.query * heads.width}));
    const Tensor k = leaf(random({rows, heads.kv * heads.width}));
    const Tensor v = leaf(random({rows, heads.kv * heads.width}));
    const Tensor dout = random({rows, heads.query * heads.width});
    Tensor expected_lse;
    const Tensor expected = plain_attention(q, k, v, heads, expected_lse);
    expected.backward(dout);

    const at::NoGradGuard guard;
    Tensor out = at::empty_like(dout);
    Tensor lse = at::empty({rows, heads.query}, at::kDouble);
    Tensor dq = at::empty_like(dout);
    Tensor dk = at::empty({rows, heads.kv * heads.width}, at::kDouble);
    Tensor dv = at::empty_like(dk);
    attention(q, k, v, heads, out, lse);
    attention_backward(q, k, v, out, lse, dout, heads, dq, dk, dv);
    expect_same(out, expected, "out");
    expect_same(lse, expected_lse, "log-sum-exp");
    expect_same(dq, q.grad(), "dq");
    expect_same(dk, k.grad(), "dk");
    expect_same(dv, v.grad(), "dv");
  }
}

TEST_F(Kernels, ActivationsEqualAutograd) {
  for (const bool gated : {false, true}) {
    const Tensor up = leaf(random({6, 10}));
    const std::int64_t width = gated ? 5 : 10;
    const Tensor dhidden = random({6, width});
    const Tensor expected = gated ? at::silu(up.narrow(1, 0, 5)) * up.narrow(1, 5, 5) : at::gelu(up);
    expected.backward(dhidden);

    const at::NoGradGuard guard;
    Tensor hidden = at::empty({6, width}, at::kDouble);
    Tensor dup = at::empty({6, 10}, at::kDouble);
    activation(up, gated, hidden);
    activation_backward(up, dhidden, gated, dup);
    expect_same(hidden, expected, "hidden");
    expect_same(dup, up.grad(), "dup");
  }
}

TEST_F(Kernels, EmbeddingSplitOverRanksEqualsAutograd) {
  const Tensor ids = at::tensor({3, 0, 7, 3, 5}, at::kLong);
  const Tensor table = leaf(random({8, 4}));
  const Tensor drows = random({5, 4});
  const Tensor expected = table.index_select(0, ids);
  expected.backward(drows);

  const at::NoGradGuard guard;
  Tensor sum = at::zeros({5, 4}, at::kDouble);
  for (int rank = 0; rank < 2; ++rank) {
    const Tensor part = table.narrow(0, 4 * rank, 4);
    Tensor rows = at::empty({5, 4}, at::kDouble);
    Tensor dtable = at::ones({4, 4}, at::kDouble);
    embedding(ids, part, 4 * rank, rows);
    embedding_weight_gradient(ids, drows, 4 * rank, dtable);
    sum.add_(rows);
    expect_same(dtable - 1, table.grad().narrow(0, 4 * rank, 4), "dtable");
  }
  expect_same(sum, expected, "rows");
}

TEST_F(Kernels, LossSplitOverRanksEqualsAutograd) {
  constexpr double kScale = 0.125;
  const std::int64_t vocabulary = 5; // of 8 columns on 4 ranks: rank 2 is partly padding, rank 3 wholly
  const Tensor targets = at::tensor({4, 0, 3, 2, 1, 4}, at::kLong);
  const Tensor logits = leaf(random({6, vocabulary}) * 3);
  const Tensor expected = -at::log_softmax(logits, -1).gather(1, targets.unsqueeze(1)).sum();
  (expected * kScale).backward();

  const at::NoGradGuard guard;
  const Tensor padded = at::cat({logits, at::full({6, 3}, 9.0, at::kDouble)}, 1); // padding must not count
  Tensor maximum = at::full({6}, -1e300, at::kDouble);
  std::vector<Tensor> parts;
  for (int rank = 0; rank < 4; ++rank) {
    parts.push_back(padded.narrow(1, 2 * rank, 2).contiguous());
    Tensor own = at::empty({6}, at::kDouble);
    loss_maximum(parts.back(), {2 * rank, std::clamp<std::int64_t>(vocabulary - 2 * rank, 0, 2)}, own);
    maximum = at::maximum(maximum, own);
  }
  Tensor sums = at::zeros({2, 6}, at::kDouble);
  for (int rank = 0; rank < 4; ++rank) {
    Tensor own = at::empty({2, 6}, at::kDouble);
    loss_sums(parts[static_cast<std::size_t>(rank)], maximum, targets,
              {2 * rank, std::clamp<std::int64_t>(vocabulary - 2 * rank, 0, 2)}, own);
    sums.add_(own);
  }
  for (int rank = 0; rank < 4; ++rank) {
    Tensor& part = parts[static_cast<std::size_t>(rank)];
    const double loss = loss_gradient(part, maximum, sums, targets,
                                      {2 * rank, std::clamp<std::int64_t>(vocabulary - 2 * rank, 0, 2)}, kScale);
    EXPECT_NEAR(loss / expected.item<double>(), 1, kRounding);
  }
  const Tensor gradient = at::cat(parts, 1);
  expect_same(gradient.narrow(1, 0, vocabulary), logits.grad(), "dlogits");
  EXPECT_EQ(gradient.narrow(1, vocabulary, 3).abs().max().item<double>(), 0) << "padding has no gradient";
}

} // namespace
} // namespace foretrain::kernels
