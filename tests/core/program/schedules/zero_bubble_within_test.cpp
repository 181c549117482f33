#include "core/program/schedules/zero_bubble.h"

#include <random>

#include <gtest/gtest.h>

namespace foretrain {
namespace {

using Counts = std::vector<int>;

constexpr int kWhole = SlotWeights::kWhole;

std::vector<SlotWeights> many_weights() {
  std::mt19937 random(3);
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  std::vector<SlotWeights> list{{}, {kWhole, kWhole, kWhole / 2, kWhole / 2}, {kWhole, 2 * kWhole, 1, 1}};
  for (int i = 0; i < 60; ++i) list.push_back({kWhole, pick(8, 40), pick(2, 32), pick(2, kWhole)});
  return list;
}

// By hand, f = i = 2 w, W retaining half: on two stages the last one can put all of its W off (2 + 3 halves of the 4
// that the cap allows), and nobody waits before the last F. With one W less behind, as zb-h2, the first stage ends one
// w later.
TEST(ZeroBubbleWithin, PutsWeightGradientsOffAsFarAsMemoryLets) {
  const SlotWeights weights{kWhole, kWhole, kWhole / 2, kWhole / 2};
  const ZeroBubblePattern pattern = zero_bubble_within({.stages = 2, .micro_batches = 4, .weights = weights}, 2);
  EXPECT_EQ(pattern.warm, (Counts{2, 0}));
  EXPECT_EQ(pattern.lag, (Counts{0, 4}));
  EXPECT_EQ(zero_bubble_span(pattern, weights, 4), 21 * kWhole / 2);
  EXPECT_EQ(zero_bubble_span(zero_bubble_h2(2), weights, 4), 22 * kWhole / 2);
}

// Equal costs: Qi et al. 2023, arXiv:2401.10241, section 2. The handcrafted schedules leave nothing to gain.
TEST(ZeroBubbleWithin, IsTheHandcraftedScheduleWhereCostsAreEqual) {
  for (const int p : {2, 3, 4, 8, 16})
    for (const int m : {2 * p, 4 * p, 9 * p}) {
      EXPECT_EQ(zero_bubble_within({.stages = p, .micro_batches = m}, 1), zero_bubble_h1(p)) << p << " " << m;
      EXPECT_EQ(zero_bubble_within({.stages = p, .micro_batches = m}, 2), zero_bubble_h2(p)) << p << " " << m;
    }
  EXPECT_EQ(zero_bubble_span(zero_bubble_h1(4), {}, 8), 27 * kWhole);
  EXPECT_EQ(zero_bubble_span(zero_bubble_h2(4), {}, 8), 24 * kWhole);
}

TEST(ZeroBubbleWithin, IsNeverWorseThanTheHandcraftedSchedules) {
  int better = 0;
  for (const SlotWeights& weights : many_weights())
    for (const int p : {1, 2, 3, 4, 7, 8})
      for (const int m : {1, 2, 5, 8, 16, 33, 64, 130}) {
        const ScheduleShape shape{.stages = p, .micro_batches = m, .weights = weights};
        const auto span = [&](const ZeroBubblePattern& pattern) { return zero_bubble_span(pattern, weights, m); };
        SCOPED_TRACE(testing::Message() << "stages " << p << " micro-batches " << m << " weights " << weights.input
                                        << " " << weights.weight << " " << weights.kept);
        ASSERT_LE(span(zero_bubble_within(shape, 1)), span(zero_bubble_h1(p)));
        ASSERT_LE(span(zero_bubble_within(shape, 2)), span(zero_bubble_h2(p)));
        better += span(zero_bubble_within(shape, 2)) < span(zero_bubble_h2(p)) ? 1 : 0;
      }
  EXPECT_GT(better, 200);
}

// A micro-batch counts whole from F until I, and in part until W.
TEST(ZeroBubbleWithin, NeverHoldsMoreThanTheCap) {
  for (const SlotWeights& weights : many_weights())
    for (const int p : {1, 2, 3, 4, 7, 8})
      for (const int m : {1, 5, 16, 64})
        for (const int cap : {1, 2}) {
          const ZeroBubblePattern pattern =
              zero_bubble_within({.stages = p, .micro_batches = m, .weights = weights}, cap);
          for (int stage = 0; stage < p; ++stage) {
            int held = 0;
            for (const ScheduleSlot& slot : zero_bubble_order(pattern, m, stage)) {
              held += slot.pass == Pass::forward ? kWhole
                      : slot.pass == Pass::input ? weights.kept - kWhole
                                                 : -weights.kept;
              ASSERT_LE(held, cap * p * kWhole) << "stages " << p << " stage " << stage << " cap " << cap;
            }
            ASSERT_EQ(held, 0);
          }
        }
}

} // namespace
} // namespace foretrain
