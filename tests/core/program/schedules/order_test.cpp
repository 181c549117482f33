#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"

namespace foretrain {
namespace {

/// "F0 F1 B0": the micro-batch after the pass, and the chunk behind a dot when there are several.
std::string text(const char* id, const ScheduleShape& shape, int stage) {
  const Schedule* schedule = schedules().find(id);
  std::string result;
  for (const ScheduleSlot& slot : schedule->order(shape, stage)) {
    if (!result.empty()) result += ' ';
    result += slot.pass == Pass::forward    ? 'F'
              : slot.pass == Pass::backward ? 'B'
              : slot.pass == Pass::input    ? 'I'
                                            : 'W';
    result += std::to_string(slot.micro_batch);
    if (shape.chunks > 1) result += "." + std::to_string(slot.chunk);
  }
  return result;
}

TEST(ScheduleOrder, GpipeRunsBackwardsInForwardOrder) {
  EXPECT_EQ(text("gpipe", {.stages = 2, .micro_batches = 3}, 0), "F0 F1 F2 B0 B1 B2");
}

// Megatron-LM, schedules.py, forward_backward_pipelining_without_interleaving.
TEST(ScheduleOrder, OneFOneBWarmsUpByTheDistanceToTheLastStage) {
  const ScheduleShape shape{.stages = 3, .micro_batches = 4};
  EXPECT_EQ(text("1f1b", shape, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text("1f1b", shape, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text("1f1b", shape, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(ScheduleOrder, OneFOneBWithFewerMicroBatchesThanStagesStillDrains) {
  EXPECT_EQ(text("1f1b", {.stages = 8, .micro_batches = 1}, 0), "F0 B0");
  EXPECT_EQ(text("1f1b", {.stages = 8, .micro_batches = 2}, 6), "F0 F1 B0 B1");
}

// Megatron-LM, schedules.py, forward_backward_pipelining_with_interleaving: warm-up 2 (p - i - 1) + (v - 1) N.
TEST(ScheduleOrder, InterleavedAlternatesChunksByGroup) {
  const ScheduleShape shape{.stages = 2, .chunks = 2, .micro_batches = 4};
  EXPECT_EQ(text("interleaved", shape, 0),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text("interleaved", shape, 1),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(ScheduleOrder, InterleavedLastGroupMayBeSmallerThanTheOthers) {
  EXPECT_EQ(text("interleaved", {.stages = 2, .chunks = 2, .micro_batches = 5, .group = 3}, 1),
            "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0 F4.0 B1.0 F3.1 B2.0 F4.1 B3.1 B4.1 B3.0 B4.0");
}

// Ten micro-batches on four stages in two groups of five, as Megatron-LM's functional test …_tunable_overlap runs them:
// warm-up 2 (4 - 3 - 1) + 5 on the last stage and 2 (4 - 0 - 1) + 5 on the first.
TEST(ScheduleOrder, InterleavedGroupsMayBeLargerThanTheStages) {
  const ScheduleShape shape{.stages = 4, .chunks = 2, .micro_batches = 10, .group = 5};
  EXPECT_EQ(text("interleaved", shape, 3),
            "F0.0 F1.0 F2.0 F3.0 F4.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.1 B4.1 "
            "F5.0 B0.0 F6.0 B1.0 F7.0 B2.0 F8.0 B3.0 F9.0 B4.0 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 F8.1 B8.1 F9.1 B9.1 "
            "B5.0 B6.0 B7.0 B8.0 B9.0");
  EXPECT_EQ(text("interleaved", shape, 0).substr(0, 60),
            "F0.0 F1.0 F2.0 F3.0 F4.0 F0.1 F1.1 F2.1 F3.1 F4.1 F5.0 F6.0 ");
  EXPECT_EQ(text("interleaved", shape, 0).substr(60, 20), "B0.1 F7.0 B1.1 F8.0 ");
  EXPECT_EQ(schedules().find("interleaved")->peak_in_flight(shape, 0), 12);
}

TEST(ScheduleOrder, ZeroBubbleDelaysWeightGradientsByTheStage) {
  const ScheduleShape shape{.stages = 3, .micro_batches = 4};
  EXPECT_EQ(text("zb-h1", shape, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(text("zb-h1", shape, 1), "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  EXPECT_EQ(text("zb-h1", shape, 2), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST(ScheduleOrder, ZeroBubbleH2WarmsUpTwiceAsFar) {
  const ScheduleShape shape{.stages = 2, .micro_batches = 4};
  EXPECT_EQ(text("zb-h2", shape, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(text("zb-h2", shape, 1), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

// By hand: zero_bubble_within_test.cpp says why.
TEST(ScheduleOrder, ZeroBubbleByCostPutsCheapWeightGradientsOff) {
  const ScheduleShape shape{.stages = 2, .micro_batches = 4, .weights = {16, 16, 8, 8}};
  EXPECT_EQ(text("zb-2p", shape, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(text("zb-2p", shape, 1), "F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3");
  EXPECT_EQ(text("zb-1p", shape, 0), text("zb-h1", shape, 0));
  EXPECT_EQ(text("zb-1p", shape, 1), text("zb-h1", shape, 1));
}

// Peaks per stage, p 4 m 8 and p 8 m 32: an independent dependency simulator over the same orders; interleaved:
// Narayanan et al. 2021 (arXiv:2104.04473); zero bubble: Qi et al. 2023 (arXiv:2401.10241), table 1.
TEST(ScheduleOrder, PeakInFlightIsThePublishedOne) {
  const auto peaks = [](const char* id, const ScheduleShape& shape) {
    std::vector<int> result;
    for (int stage = 0; stage < shape.stages; ++stage)
      result.push_back(schedules().find(id)->peak_in_flight(shape, stage));
    return result;
  };
  const auto first = [&](const char* id, const ScheduleShape& shape) { return peaks(id, shape).front(); };
  using Peaks = std::vector<int>;
  EXPECT_EQ(peaks("gpipe", {4, 1, 8}), (Peaks{8, 8, 8, 8}));
  EXPECT_EQ(peaks("1f1b", {4, 1, 8}), (Peaks{4, 3, 2, 1}));
  EXPECT_EQ(peaks("interleaved", {4, 2, 8}), (Peaks{11, 9, 7, 5}));
  EXPECT_EQ(peaks("interleaved", {4, 4, 8}), (Peaks{19, 17, 15, 13}));
  EXPECT_EQ(peaks("zb-h1", {4, 1, 8}), (Peaks{4, 4, 4, 4}));
  EXPECT_EQ(peaks("zb-h2", {4, 1, 8}), (Peaks{7, 7, 7, 7}));
  EXPECT_EQ(first("gpipe", {8, 1, 32}), 32);
  EXPECT_EQ(first("1f1b", {8, 1, 32}), 8);
  EXPECT_EQ(first("interleaved", {8, 2, 32}), 23);
  EXPECT_EQ(first("interleaved", {8, 4, 32}), 39);
  EXPECT_EQ(first("zb-h1", {8, 1, 32}), 8);
  EXPECT_EQ(first("zb-h2", {8, 1, 32}), 15);
}

} // namespace
} // namespace foretrain
