#include "core/program/slot_weights.h"

#include <gtest/gtest.h>

#include "tests/core/program/fixtures.h"

namespace foretrain {
namespace {

using namespace fixtures;

/// On H100 SXM: NVIDIA's data sheet, dense.
Plan on_h100(int sequence, int global_batch) {
  Plan p = plan(llama3_70b(2), 8, sequence, global_batch);
  p.cluster.device.bf16 = FlopPerSecond(989e12);
  p.cluster.device.memory_bandwidth = BytesPerSecond(3.35e12);
  return p;
}

SlotWeights weights(const Plan& p) {
  return slot_weights(p.model, p.job, megatron(), p.cluster.device, p.layout);
}

// Where products are all there is, each is done three times: 2 FLOP per weight and token forward, for the input's
// gradient and for the weights' (Kaplan et al. 2020, arXiv:2001.08361, section 2.1).
TEST(SlotWeights, AreAlikeWhereProductsAreAllThereIs) {
  Plan p = on_h100(512, 64);
  p.layout.micro_batch = 16;
  const SlotWeights w = weights(p);
  EXPECT_EQ(w.forward, SlotWeights::kWhole);
  EXPECT_NEAR(w.input, SlotWeights::kWhole, 2);
  EXPECT_NEAR(w.weight, SlotWeights::kWhole, 2);
}

// Attention has no weights: over long sequences W is short beside F, and I takes more than both (Dao 2023,
// arXiv:2307.08691: its backward has five products for two forward).
TEST(SlotWeights, LeaveAttentionOutOfWeightGradients) {
  const SlotWeights w = weights(on_h100(131072, 8));
  EXPECT_LT(w.weight, w.forward);
  EXPECT_GT(w.input, w.forward + w.forward / 2);
}

TEST(SlotWeights, DoNotFollowWhatSharesAnOrder) {
  Plan p = on_h100(4096, 64);
  p.layout.tp = 2;
  const SlotWeights before = weights(p);
  p.layout.recompute.kind = RecomputeKind::full;
  p.layout.pp = 4;
  p.layout.sharding.kind = ShardingKind::none;
  EXPECT_EQ(weights(p), before);
}

TEST(SlotWeights, AreAlikeWhereThePeakIsNotKnown) {
  Plan p = on_h100(131072, 8);
  p.cluster.device.memory_bandwidth.reset();
  EXPECT_EQ(weights(p), SlotWeights{});
}

} // namespace
} // namespace foretrain
