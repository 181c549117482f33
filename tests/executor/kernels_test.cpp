#include <array>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "executor/kernels/tensor_kernels.h"

/// Hand-written gradients against LibTorch's autograd of the plain formula, in double: the loops over the host's
/// memory, and the same by LibTorch's operators.
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

/// The operators in many small pieces.
const KernelSet& piecewise_kernels() {
  static constexpr tensors::Limits kSmall{1000, 10};
  static const KernelSet set = [] {
    KernelSet pieces = tensor_kernels();
    pieces.attention = [](const AttentionInputs& in, const AttentionShape& shape, Tensor& out, Tensor& logsumexp) {
      tensors::attention(in, shape, out, logsumexp, kSmall);
    };
    pieces.attention_backward = [](const AttentionInputs& in, const AttentionGradients& g, const AttentionShape& shape,
                                   Tensor& dq, Tensor& dk,
                                   Tensor& dv) { tensors::attention_backward(in, g, shape, dq, dk, dv, kSmall); };
    pieces.loss_sums = [](const Tensor& logits, const Tensor& maximum, const Tensor& targets,
                          const Vocabulary& vocabulary,
                          Tensor& sums) { tensors::loss_sums(logits, maximum, targets, vocabulary, sums, kSmall); };
    pieces.loss_gradient = [](Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                              const Vocabulary& vocabulary, double scale, LossSum& loss) {
      tensors::loss_gradient(logits, maximum, sums, targets, vocabulary, scale, loss, kSmall);
    };
    return pieces;
  }();
  return set;
}

class Kernels : public testing::TestWithParam<const KernelSet*> {
protected:
  void SetUp() override { at::manual_seed(7); }
  const KernelSet& set_ = *GetParam();
};

TEST_P(Kernels, NormsEqualAutograd) {
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

    const c10::NoGradGuard guard;
    Tensor y = at::empty_like(dy);
    Tensor statistics = at::empty({layer ? 2 : 1, 6}, at::kDouble);
    set_.norm(x, weight, layer ? &bias : nullptr, y, statistics);
    Tensor dx = at::empty_like(dy);
    Tensor dweight = at::ones({8}, at::kDouble); // a gradient is added, never overwritten
    Tensor dbias = at::ones({8}, at::kDouble);
    set_.norm_backward(x, statistics, weight, dy, &residual, dx, dweight, layer ? &dbias : nullptr);
    expect_same(y, expected, "y");
    expect_same(dx - residual, x.grad(), "dx");
    expect_same(dweight - 1, weight.grad(), "dweight");
    if (layer) expect_same(dbias - 1, bias.grad(), "dbias");
  }
}

TEST_P(Kernels, LinearEqualsAutograd) {
  const Tensor x = leaf(random({6, 8}));
  const Tensor weight = leaf(random({5, 8}));
  const Tensor bias = leaf(random({5}));
  const Tensor dy = random({6, 5});
  const Tensor expected = at::mm(x, weight.t()) + bias;
  expected.backward(dy);

  const c10::NoGradGuard guard;
  Tensor y = at::empty_like(dy);
  Tensor dx = at::empty({6, 8}, at::kDouble);
  Tensor dweight = at::ones({5, 8}, at::kDouble);
  Tensor dbias = at::ones({5}, at::kDouble);
  linear(x, weight, &bias, y);
  linear_input_gradient(dy, weight, dx);
  set_.linear_weight_gradient(x, dy, dweight, &dbias);
  expect_same(y, expected, "y");
  expect_same(dx, x.grad(), "dx");
  expect_same(dweight - 1, weight.grad(), "dweight");
  expect_same(dbias - 1, bias.grad(), "dbias");
}

/// RoPE by complex numbers: coordinates i and i + width/2 of a head are one number, turned by position ·
/// base^(−2i/width).
Tensor turned(const Tensor& rows, std::int64_t count, std::int64_t width, const std::vector<std::int64_t>& positions) {
  const std::int64_t half = width / 2;
  const Tensor x = rows.view({-1, static_cast<std::int64_t>(positions.size()), count, 2, half});
  const Tensor frequency = at::pow(at::full({half}, kRopeBase, at::kDouble),
                                   at::arange(half, at::kDouble) * (-2.0 / static_cast<double>(width)));
  const Tensor angle = at::tensor(positions, at::kLong).to(at::kDouble).view({-1, 1, 1}) * frequency;
  const Tensor real = x.select(3, 0) * angle.cos() - x.select(3, 1) * angle.sin();
  const Tensor imaginary = x.select(3, 0) * angle.sin() + x.select(3, 1) * angle.cos();
  return at::cat({real, imaginary}, -1).view({rows.size(0), -1});
}

TEST_P(Kernels, RopeEqualsAutograd) {
  const std::vector<std::int64_t> positions = {0, 1, 5, 6, 11};
  const Tensor qkv = leaf(random({10, 8 * 6}));
  const Tensor dq = random({10, 24});
  const Tensor dk = random({10, 12});
  const Tensor dv = random({10, 12});
  const Tensor q = turned(qkv.narrow(1, 0, 24).contiguous(), 4, 6, positions);
  const Tensor k = turned(qkv.narrow(1, 24, 12).contiguous(), 2, 6, positions);
  const Tensor v = qkv.narrow(1, 36, 12);
  ((q * dq).sum() + (k * dk).sum() + (v * dv).sum()).backward();

  const c10::NoGradGuard guard;
  const RopeShape shape{4, 2, 6, rope_turns(positions, 6, at::kDouble)};
  const HeadRows mine{at::empty_like(dq), at::empty_like(dk), at::empty_like(dv)};
  const Tensor dqkv = at::empty({10, 48}, at::kDouble);
  set_.rope(parts_of(qkv, shape), shape, mine);
  set_.rope_backward({dq, dk, dv}, shape, parts_of(dqkv, shape));
  expect_same(mine.q, q, "q");
  expect_same(mine.k, k, "k");
  expect_same(mine.v, v, "v");
  expect_same(dqkv, qkv.grad(), "dqkv");
}

struct Attended {
  AttentionShape shape;
  std::int64_t width = 6;
  std::int64_t value_width = 6;
  std::int64_t parts = 1; ///< that keys come in
};

std::vector<std::int64_t> up_to(std::int64_t count) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) list[static_cast<std::size_t>(i)] = i;
  return list;
}

/// Attention with keys and values repeated for each query head.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& shape,
                       Tensor& logsumexp) {
  const auto by_heads = [](const Tensor& rows, const std::vector<std::int64_t>& positions, std::int64_t count) {
    const auto length = static_cast<std::int64_t>(positions.size());
    return rows.view({-1, length, count, rows.size(1) / count}).transpose(1, 2);
  };
  const std::int64_t each = shape.query / shape.kv;
  const Tensor queries = by_heads(q, shape.query_positions, shape.query);
  const Tensor keys = by_heads(k, shape.key_positions, shape.kv).repeat_interleave(each, 1);
  const Tensor values = by_heads(v, shape.key_positions, shape.kv).repeat_interleave(each, 1);
  const Tensor distance = at::tensor(shape.query_positions, at::kLong).unsqueeze(1) -
                          at::tensor(shape.key_positions, at::kLong).unsqueeze(0);
  Tensor visible = distance.ge(0);
  if (shape.window > 0) visible = visible.logical_and(distance.lt(shape.window));
  const Tensor scores = at::matmul(queries, keys.transpose(-1, -2)) / std::sqrt(static_cast<double>(queries.size(-1))) +
                        visible.to(at::kDouble).log();
  logsumexp = at::logsumexp(scores, {-1}).transpose(1, 2).reshape({-1, shape.query});
  return at::matmul(at::softmax(scores, -1), values).transpose(1, 2).reshape({q.size(0), -1});
}

/// Keys of one sequence in parts, as ranks of a ring hand them on.
void attend_in_parts(const KernelSet& set, const Attended& c, const AttentionInputs& in, const Tensor& dout,
                     Tensor& out, Tensor& lse, std::array<Tensor, 3>& gradients) {
  const auto keys = static_cast<std::int64_t>(c.shape.key_positions.size()) / c.parts;
  const auto part = [&](const Tensor& rows, std::int64_t i) {
    return rows.view({-1, c.parts, keys, rows.size(1)}).select(1, i).reshape({-1, rows.size(1)});
  };
  const auto shape_of = [&](std::int64_t i) {
    AttentionShape shape = c.shape;
    const auto first = c.shape.key_positions.begin() + i * keys;
    shape.key_positions.assign(first, first + keys);
    return shape;
  };
  attention_start(out, lse);
  for (std::int64_t i = 0; i < c.parts; ++i) set.attention({in.q, part(in.k, i), part(in.v, i)}, shape_of(i), out, lse);
  for (Tensor& gradient : gradients) gradient.zero_();
  for (std::int64_t i = 0; i < c.parts; ++i) {
    Tensor dk = at::zeros_like(part(in.k, i));
    Tensor dv = at::zeros_like(part(in.v, i));
    set.attention_backward({in.q, part(in.k, i), part(in.v, i)}, {out, lse, dout}, shape_of(i), gradients[0], dk, dv);
    gradients[1].view({-1, c.parts, keys, dk.size(1)}).select(1, i).copy_(dk.view({-1, keys, dk.size(1)}));
    gradients[2].view({-1, c.parts, keys, dv.size(1)}).select(1, i).copy_(dv.view({-1, keys, dv.size(1)}));
  }
}

TEST_P(Kernels, AttentionEqualsAutograd) {
  const std::vector<std::int64_t> zigzag = {2, 3, 4, 5};               // of the second of two ranks
  const std::vector<std::int64_t> gathered = {0, 1, 6, 7, 2, 3, 4, 5}; // of both
  const std::vector<Attended> grid = {
      {{4, 4, 0, up_to(5), up_to(5)}},        {{4, 2, 0, up_to(5), up_to(5)}},
      {{4, 1, 0, up_to(5), up_to(5)}},        {{4, 2, 3, up_to(7), up_to(7)}},
      {{2, 2, 0, up_to(5), up_to(5)}, 6, 4},  {{4, 2, 0, up_to(300), up_to(300)}}, // several blocks of queries
      {{4, 2, 40, up_to(300), up_to(300)}},   {{4, 2, 0, zigzag, gathered}, 6, 6, 2},
      {{4, 2, 3, zigzag, gathered}, 6, 6, 2},
  };
  for (const Attended& c : grid) {
    const auto queries = static_cast<std::int64_t>(c.shape.query_positions.size());
    const auto keys = static_cast<std::int64_t>(c.shape.key_positions.size());
    const Tensor q = leaf(random({2 * queries, c.shape.query * c.width}));
    const Tensor k = leaf(random({2 * keys, c.shape.kv * c.width}));
    const Tensor v = leaf(random({2 * keys, c.shape.kv * c.value_width}));
    const Tensor dout = random({2 * queries, c.shape.query * c.value_width});
    Tensor expected_lse;
    const Tensor expected = plain_attention(q, k, v, c.shape, expected_lse);
    expected.backward(dout);

    const c10::NoGradGuard guard;
    Tensor out = at::empty_like(dout);
    Tensor lse = at::empty({2 * queries, c.shape.query}, at::kDouble);
    std::array<Tensor, 3> gradients = {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
    attend_in_parts(set_, c, {q, k, v}, dout, out, lse, gradients);
    expect_same(out, expected, "out");
    expect_same(lse, expected_lse, "log-sum-exp");
    expect_same(gradients[0], q.grad(), "dq");
    expect_same(gradients[1], k.grad(), "dk");
    expect_same(gradients[2], v.grad(), "dv");
  }
}

TEST_P(Kernels, ActivationsEqualAutograd) {
  for (const bool gated : {false, true}) {
    const Tensor up = leaf(random({6, 10}));
    const std::int64_t width = gated ? 5 : 10;
    const Tensor dhidden = random({6, width});
    const Tensor expected = gated ? at::silu(up.narrow(1, 0, 5)) * up.narrow(1, 5, 5) : at::gelu(up);
    expected.backward(dhidden);

    const c10::NoGradGuard guard;
    Tensor hidden = at::empty({6, width}, at::kDouble);
    Tensor dup = at::empty({6, 10}, at::kDouble);
    activation(up, gated, hidden);
    set_.activation_backward(up, dhidden, gated, dup);
    expect_same(hidden, expected, "hidden");
    expect_same(dup, up.grad(), "dup");
  }
}

TEST_P(Kernels, EmbeddingSplitOverRanksEqualsAutograd) {
  const Tensor ids = at::tensor({3, 0, 7, 3, 5}, at::kLong);
  const Tensor table = leaf(random({8, 4}));
  const Tensor drows = random({5, 4});
  const Tensor expected = table.index_select(0, ids);
  expected.backward(drows);

  const c10::NoGradGuard guard;
  Tensor sum = at::zeros({5, 4}, at::kDouble);
  for (int rank = 0; rank < 2; ++rank) {
    const Tensor part = table.narrow(0, 4 * rank, 4);
    Tensor rows = at::empty({5, 4}, at::kDouble);
    Tensor dtable = at::ones({4, 4}, at::kDouble);
    set_.embedding(ids, part, 4 * rank, rows);
    set_.embedding_weight_gradient(ids, drows, 4 * rank, dtable);
    sum.add_(rows);
    expect_same(dtable - 1, table.grad().narrow(0, 4 * rank, 4), "dtable");
  }
  expect_same(sum, expected, "rows");
}

TEST_P(Kernels, LossSplitOverRanksEqualsAutograd) {
  constexpr double kScale = 0.125;
  const std::int64_t vocabulary = 5; // of 8 columns on 4 ranks: rank 2 is partly padding, rank 3 wholly
  const Tensor targets = at::tensor({4, 0, 3, 2, 1, 4}, at::kLong);
  const Tensor logits = leaf(random({6, vocabulary}) * 3);
  const Tensor expected = -at::log_softmax(logits, -1).gather(1, targets.unsqueeze(1)).sum();
  (expected * kScale).backward();

  const c10::NoGradGuard guard;
  const Tensor padded = at::cat({logits, at::full({6, 3}, 9.0, at::kDouble)}, 1); // padding must not count
  Tensor maximum = at::full({6}, -1e300, at::kDouble);
  std::vector<Tensor> parts;
  for (int rank = 0; rank < 4; ++rank) {
    parts.push_back(padded.narrow(1, 2 * rank, 2).contiguous());
    Tensor own = at::empty({6}, at::kDouble);
    set_.loss_maximum(parts.back(), {2 * rank, std::clamp<std::int64_t>(vocabulary - 2 * rank, 0, 2)}, own);
    maximum = at::maximum(maximum, own);
  }
  Tensor sums = at::zeros({2, 6}, at::kDouble);
  for (int rank = 0; rank < 4; ++rank) {
    Tensor own = at::empty({2, 6}, at::kDouble);
    set_.loss_sums(parts[static_cast<std::size_t>(rank)], maximum, targets,
                   {2 * rank, std::clamp<std::int64_t>(vocabulary - 2 * rank, 0, 2)}, own);
    sums.add_(own);
  }
  for (int rank = 0; rank < 4; ++rank) {
    Tensor& part = parts[static_cast<std::size_t>(rank)];
    LossSum loss;
    set_.loss_gradient(part, maximum, sums, targets, {2 * rank, std::clamp<std::int64_t>(vocabulary - 2 * rank, 0, 2)},
                       kScale, loss);
    EXPECT_NEAR(loss.value() / expected.item<double>(), 1, kRounding);
  }
  const Tensor gradient = at::cat(parts, 1);
  expect_same(gradient.narrow(1, 0, vocabulary), logits.grad(), "dlogits");
  EXPECT_EQ(gradient.narrow(1, vocabulary, 3).abs().max().item<double>(), 0) << "padding has no gradient";
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::Values(&host_kernels(), &tensor_kernels(), &piecewise_kernels()),
                         [](const auto& one) {
                           return one.param == &host_kernels()     ? "host"
                                  : one.param == &tensor_kernels() ? "tensors"
                                                                   : "pieces";
                         });

} // namespace
} // namespace foretrain::kernels
