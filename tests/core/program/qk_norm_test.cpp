#include <algorithm>

#include <gtest/gtest.h>

#include "core/program/blocks.h"
#include "core/program/context.h"
#include "tests/core/program/fixtures.h"

/// Norms of queries and keys: what they keep, move and reduce, worked by hand for the attention of Qwen3-8B
/// (huggingface.co/Qwen/Qwen3-8B config.json: 32 heads and 8 key heads of 128) over 4096 tokens.
namespace foretrain {
namespace {

using namespace fixtures;

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kColumns = (32 + 8) * 128; ///< of queries and keys

ModelSpec qwen3_8b(QkNorm norm) {
  ModelSpec m = llama3(4096, 32, 12288, 2);
  m.vocab = 151936;
  m.qk_norm = norm;
  return m;
}

Plan plan_of(QkNorm norm, int tp = 1, bool sp = false) {
  Plan p = plan(qwen3_8b(norm), tp, kTokens, 1);
  p.layout.tp = tp;
  p.layout.sequence_parallel = sp;
  return p;
}

Block layer(const Plan& plan, const Semantics& semantics) {
  const LayerContext context = make_context(plan.model, plan.job, semantics, plan.layout, plan.cluster.device, false);
  return make_layer(context, layer_shapes(plan.model).front(), false);
}

/// What the forward of a layer keeps more than without norms.
std::int64_t kept(const Plan& normed, const Semantics& semantics) {
  Plan plain = normed;
  plain.model.qk_norm = QkNorm::none;
  return (layer(normed, semantics).forward_memory.net - layer(plain, semantics).forward_memory.net).value;
}

double moved(const std::vector<Op>& ops) {
  double bytes = 0;
  for (const Op& op : ops)
    if (op.segment == Segment::norm)
      for (const Kernel& kernel : op.kernels) bytes += kernel.bytes;
  return bytes;
}

// Input in 16 bits, 1/rms of every head in 32.
TEST(QueryKeyNorms, KeepTheirInputAndAStatisticPerHead) {
  EXPECT_EQ(kept(plan_of(QkNorm::per_head), megatron()), 2 * kTokens * kColumns + 4 * kTokens * 40);
  EXPECT_EQ(kept(plan_of(QkNorm::per_head), megatron()), 42'598'400);
  EXPECT_EQ(kept(plan_of(QkNorm::per_head, 4, true), megatron()), 42'598'400 / 4); // all tokens, a quarter of the heads
  Plan layer_norm = plan_of(QkNorm::per_head);
  layer_norm.model.norm = NormKind::layer;
  EXPECT_EQ(kept(layer_norm, megatron()), 42'598'400 + 4 * kTokens * 40); // and the mean
}

// Megatron-Core recomputes the norms before the halves only.
TEST(QueryKeyNorms, AreNotAmongTheNormsThatARecomputationCovers) {
  Plan p = plan_of(QkNorm::per_head);
  p.layout.recompute.kind = RecomputeKind::selective;
  p.layout.recompute.modules = {RecomputeModule::layernorm};
  EXPECT_EQ(kept(p, megatron()), 42'598'400);
}

// Operators of their own: the input in 32 bits and the normalised value in 16.
TEST(QueryKeyNorms, UnfusedKeepTheWideInputAndTheNormalisedValue) {
  Plan p = plan_of(QkNorm::per_head);
  p.job.norm = NormKernel::unfused;
  EXPECT_EQ(kept(p, megatron()), (4 + 2) * kTokens * kColumns + 4 * kTokens * 40);
}

// Megatron-Bridge's norm over all heads is made of operators; elsewhere it is one kernel with a statistic per row.
TEST(QueryKeyNorms, OverAllHeadsKeepOneStatisticPerRow) {
  Semantics fsdp = megatron();
  fsdp.family = SemanticsFamily::fsdp;
  EXPECT_EQ(kept(plan_of(QkNorm::full_width), fsdp), 2 * kTokens * kColumns + 4 * kTokens * 2);
  EXPECT_EQ(kept(plan_of(QkNorm::full_width), megatron()), 6 * kTokens * kColumns + 4 * kTokens * 2);
}

TEST(QueryKeyNorms, MoveTheirColumnsTwiceForwardAndThreeTimesBackward) {
  const Block normed = layer(plan_of(QkNorm::per_head), megatron());
  const Block plain = layer(plan_of(QkNorm::none), megatron());
  EXPECT_EQ(moved(normed.forward) - moved(plain.forward), 2.0 * 2 * kTokens * kColumns);
  EXPECT_EQ(moved(normed.backward) - moved(plain.backward), 3.0 * 2 * kTokens * kColumns);
}

std::int64_t sum_over_tp(const Plan& plan) {
  const Program program = lower(plan, megatron());
  std::int64_t bytes = 0;
  for (const Op& op : program.roles.front().step)
    if (op.kind == OpKind::collective && op.group == Group::tp) bytes += op.bytes.value;
  return bytes;
}

// Each rank has the gradient of its own heads, whether the sequence is split or not: two times 128 weights per layer in
// fp32. Under sequence parallelism those of the other norms are added, two per layer and one at the end.
TEST(QueryKeyNorms, HaveTheirGradientsSummedOverTensorParallelRanks) {
  EXPECT_EQ(sum_over_tp(plan_of(QkNorm::none, 2)), 0);
  EXPECT_EQ(sum_over_tp(plan_of(QkNorm::per_head, 1)), 0);
  EXPECT_EQ(sum_over_tp(plan_of(QkNorm::per_head, 2)), 4 * 2 * 256);
  EXPECT_EQ(sum_over_tp(plan_of(QkNorm::per_head, 2, true)), 4 * (2 * 256 + 5 * 4096));
  EXPECT_EQ(sum_over_tp(plan_of(QkNorm::full_width, 2)), 0); // split like the heads
}

// Over heads that tp splits, each row's sum of squares is added up, once for queries and once for keys.
TEST(QueryKeyNorms, OverAllHeadsAddUpTheirSquares) {
  const auto reductions = [](int tp) {
    std::vector<std::int64_t> bytes;
    for (const Op& op : layer(plan_of(QkNorm::full_width, tp, tp > 1), megatron()).forward)
      if (op.kind == OpKind::collective && op.collective == Collective::all_reduce) bytes.push_back(op.bytes.value);
    return bytes;
  };
  EXPECT_EQ(reductions(1), std::vector<std::int64_t>());
  EXPECT_EQ(reductions(2), (std::vector<std::int64_t>{4 * kTokens, 4 * kTokens}));
}

// Megatron-Bridge's sum is no step of autograd, so its backward sends nothing; this executor's gradient is exact, for
// which each row's products are added up too: a number per token, forward and backward, for queries and for keys.
TEST(QueryKeyNorms, OverAllHeadsAddUpProductsInTheExecutorsBackward) {
  const auto sums = [](const std::vector<Op>& ops) {
    std::vector<std::int64_t> bytes;
    for (const Op& op : ops)
      if (op.kind == OpKind::collective && op.collective == Collective::all_reduce) bytes.push_back(op.bytes.value);
    return bytes;
  };
  Semantics executor = megatron();
  executor.family = SemanticsFamily::foretrain;
  const std::vector<std::int64_t> two = {4 * kTokens, 4 * kTokens};
  const Block exact = layer(plan_of(QkNorm::full_width, 2, true), executor);
  EXPECT_EQ(sums(exact.forward), two);
  EXPECT_EQ(sums(exact.backward), two);
  EXPECT_EQ(sums(layer(plan_of(QkNorm::full_width, 1), executor).backward), std::vector<std::int64_t>());
  EXPECT_EQ(sums(layer(plan_of(QkNorm::per_head, 2, true), executor).backward), std::vector<std::int64_t>());
  EXPECT_EQ(sums(layer(plan_of(QkNorm::full_width, 2, true), megatron()).backward), std::vector<std::int64_t>());
}

TEST(QueryKeyNorms, AddUpToTheModelsParameters) {
  for (const QkNorm norm : {QkNorm::per_head, QkNorm::full_width})
    for (const NormKind kind : {NormKind::rms, NormKind::layer})
      for (const int tp : {1, 4}) {
        Plan p = plan_of(norm, tp);
        p.model.norm = kind;
        std::int64_t here = 0;
        for (const Parameter& parameter : layer(p, megatron()).parameters)
          here += parameter.local_elements() * (parameter.replicated_tp ? 1 : tp);
        EXPECT_EQ(here, layer_parameters(p.model, layer_shapes(p.model).front(), false));
      }
}

} // namespace
} // namespace foretrain
