#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"

namespace foretrain {
namespace {

const Schedule& schedule(const char* id) {
  return *schedules().find(id);
}

// NVIDIA-NeMo/NeMo#14288: PP 6 with virtual stages and 3 micro-batches died with a range message.
TEST(ScheduleLegal, InterleavedNeedsAsManyMicroBatchesAsStages) {
  const auto rejection = schedule("interleaved").legal({.stages = 6, .chunks = 2, .micro_batches = 3});
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->rule, "interleaved-micro-batches");
  EXPECT_EQ(rejection->needed, 6);
  EXPECT_EQ(rejection->available, 3);
  EXPECT_EQ(rejection->nearest.front(), "micro-batches 6");
  EXPECT_FALSE(schedule("interleaved").legal({.stages = 6, .chunks = 2, .micro_batches = 6}));
}

TEST(ScheduleLegal, InterleavedGroupLiesBetweenStagesAndMicroBatches) {
  const auto legal = [](int group) {
    return !schedule("interleaved").legal({.stages = 4, .chunks = 2, .micro_batches = 12, .group = group});
  };
  EXPECT_FALSE(legal(-1));
  EXPECT_FALSE(legal(3));
  EXPECT_TRUE(legal(4));
  EXPECT_FALSE(legal(5)); // a last group of 2 on 4 stages
  EXPECT_TRUE(legal(8));  // a last group of 4
  EXPECT_TRUE(legal(12));
  EXPECT_FALSE(legal(13));
}

// pytorch/pytorch#129597: 10 micro-batches on 4 stages run in 2 rounds of 5.
TEST(ScheduleLegal, InterleavedTakesTenMicroBatchesOnFourStagesInGroupsOfFive) {
  EXPECT_FALSE(schedule("interleaved").legal({.stages = 4, .chunks = 2, .micro_batches = 10, .group = 5}));
  const auto rejection = schedule("interleaved").legal({.stages = 4, .chunks = 2, .micro_batches = 10});
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->available, 2);
  EXPECT_EQ(rejection->nearest, (std::vector<std::string>{"micro-batches 8", "micro-batches 12"}));
}

TEST(ScheduleLegal, CircularWaitsOfBlockingTransfersAreRefused) {
  const ScheduleShape grouped{.stages = 4, .chunks = 2, .micro_batches = 12, .group = 6};
  ASSERT_FALSE(schedule("interleaved").legal(grouped));
  ASSERT_TRUE(schedule("interleaved").legal_blocking(grouped));
  EXPECT_EQ(schedule("interleaved").legal_blocking(grouped)->nearest.front(), "group 4");
  EXPECT_FALSE(schedule("interleaved").legal_blocking({.stages = 4, .chunks = 2, .micro_batches = 12}));
  EXPECT_TRUE(schedule("zb-h2").legal_blocking({.stages = 2, .micro_batches = 4}));
  EXPECT_FALSE(schedule("zb-h2").legal_blocking({.stages = 1, .micro_batches = 4}));
  EXPECT_FALSE(schedule("1f1b").legal_blocking({.stages = 8, .micro_batches = 1}));
}

// pytorch/torchtitan#775: 1F1B with 1 micro-batch on 8 stages hung while GPipe ran.
TEST(ScheduleLegal, OneFOneBWithOneMicroBatchIsFlagged) {
  const ScheduleShape shape{.stages = 8, .micro_batches = 1};
  EXPECT_FALSE(schedule("1f1b").legal(shape));
  EXPECT_NE(schedule("1f1b").caution(shape).find("hangs with 1 micro-batches on 8 stages"), std::string::npos);
  EXPECT_FALSE(schedule("gpipe").legal(shape));
  EXPECT_EQ(schedule("gpipe").caution(shape).find("hangs"), std::string::npos);
  EXPECT_EQ(schedule("1f1b").caution({.stages = 8, .micro_batches = 8}), "");
}

TEST(ScheduleLegal, AMillionMicroBatchesOnEightStagesAreRefusedAtOnce) {
  for (const auto& entry : schedules()) {
    const int chunks = entry->takes_chunks() ? 2 : 1;
    const auto rejection = entry->legal({.stages = 8, .chunks = chunks, .micro_batches = 1'000'000});
    ASSERT_TRUE(rejection) << entry->id();
    EXPECT_EQ(rejection->rule, "schedule-size");
    EXPECT_EQ(rejection->nearest.size(), 1u);
  }
}

TEST(ScheduleLegal, AnyNumbersGiveAReasonOrAnOrder) {
  std::mt19937 random(1);
  const int picks[] = {std::numeric_limits<int>::min(), -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 64, 1'000'000,
                       std::numeric_limits<int>::max()};
  std::uniform_int_distribution<std::size_t> pick(0, std::size(picks) - 1);
  int rejected = 0;
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    const ScheduleShape shape{.stages = picks[pick(random)],
                              .chunks = picks[pick(random) % 6],
                              .micro_batches = picks[pick(random)],
                              .group = round % 2 == 0 ? 0 : picks[pick(random)]};
    for (const auto& entry : schedules()) {
      if (const auto rejection = entry->legal(shape)) {
        ++rejected;
        EXPECT_FALSE(rejection->rule.empty());
        EXPECT_FALSE(rejection->reason.empty());
        EXPECT_NE(rejection->needed, rejection->available);
        continue;
      }
      ++accepted;
      if (1LL * shape.chunks * shape.micro_batches > 1000) continue;
      const auto slots = entry->order(shape, shape.stages - 1);
      EXPECT_EQ(slots.size(), static_cast<std::size_t>((entry->splits_backward() ? 3 : 2) * shape.chunks) *
                                  static_cast<std::size_t>(shape.micro_batches));
    }
  }
  EXPECT_GT(rejected, 1000);
  EXPECT_GT(accepted, 1000);
}

TEST(ScheduleLegal, WhatTheRejectionProposesIsLegal) {
  for (int p = 2; p <= 9; ++p)
    for (int m = 1; m <= 40; ++m)
      for (int group = 0; group <= 12; ++group) {
        ScheduleShape shape{.stages = p, .chunks = 2, .micro_batches = m, .group = group};
        const auto rejection = schedule("interleaved").legal(shape);
        if (!rejection || rejection->rule != "interleaved-micro-batches" || m < p) continue;
        for (const std::string& change : rejection->nearest) {
          ASSERT_EQ(change.rfind("micro-batches ", 0), 0u);
          shape.micro_batches = std::stoi(change.substr(14));
          EXPECT_FALSE(schedule("interleaved").legal(shape)) << p << " " << m << " " << group << " -> " << change;
        }
      }
}

} // namespace
} // namespace foretrain
