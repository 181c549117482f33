#include "planner/ties.h"

#include <gtest/gtest.h>

/// Which of the plans whose order is not settled to take.
namespace foretrain {
namespace {

constexpr std::int64_t kGiBytes = std::int64_t{1} << 30;

Candidate candidate(double seconds, std::int64_t gib, int pp = 1) {
  Candidate c;
  c.layout.pp = pp;
  c.prediction.step_time = Seconds(seconds);
  c.prediction.evidence = Evidence::fitted;
  c.prediction.memory.emplace_back();
  c.prediction.memory.back().device = Bytes(gib * kGiBytes);
  return c;
}

/// Plans of one study differ by up to 5 % without saying which is the faster.
Intervals five_percent() {
  Intervals intervals;
  for (auto& level : intervals.time)
    for (Interval& interval : level) interval.own_high = 1.05;
  return intervals;
}

const Bytes kCapacity(80 * kGiBytes);

TEST(Ties, CountThePlansWithinTheOwnPartOfTheBestOnesInterval) {
  EXPECT_EQ(tied_with_best({}, five_percent()), 0);
  EXPECT_EQ(tied_with_best({candidate(1, 60), candidate(1.04, 60), candidate(1.06, 60)}, five_percent()), 2);
}

TEST(Ties, PreferFewerMovingPartsAmongPlansWithMemoryToSpare) {
  EXPECT_EQ(preferred_of({candidate(1, 60, 4), candidate(1.03, 70), candidate(1.04, 65, 2)}, five_percent(), kCapacity),
            1);
}

TEST(Ties, PreferMemoryToSpareToFewerMovingParts) {
  EXPECT_EQ(preferred_of({candidate(1, 79), candidate(1.03, 70, 4)}, five_percent(), kCapacity), 1);
}

TEST(Ties, PreferMoreFreeMemoryAmongEqualParts) {
  EXPECT_EQ(preferred_of({candidate(1, 60), candidate(1.03, 50), candidate(1.04, 55)}, five_percent(), kCapacity), 1);
}

TEST(Ties, LeaveThePlansThatAreSlowerOut) {
  EXPECT_EQ(preferred_of({candidate(1, 79, 4), candidate(1.2, 20)}, five_percent(), kCapacity), 0);
  EXPECT_EQ(preferred_of({}, five_percent(), kCapacity), -1);
}

TEST(MovingParts, AreTheMechanismsBesidePlainDataParallelism) {
  Layout layout;
  layout.dp_shard = 8;
  EXPECT_EQ(moving_parts(layout), 0);
  layout.tp = 2;
  layout.sequence_parallel = true;
  layout.pp = 4;
  layout.schedule = {"interleaved", 2};
  layout.recompute.kind = RecomputeKind::full;
  EXPECT_EQ(moving_parts(layout), 5);
  layout.sharding.kind = ShardingKind::parameters;
  EXPECT_EQ(moving_parts(layout), 6);
}

} // namespace
} // namespace foretrain
