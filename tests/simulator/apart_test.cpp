#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"
#include "simulator/slots.h"

/// Steps whose stages do not wait for one another at the end (post-validation).
namespace foretrain {
namespace {

constexpr double kRounding = 1e-9;

SlotCosts even(const ScheduleShape& shape, double f, double i, double w, double p2p = 0) {
  const auto stages = static_cast<std::size_t>(shape.stages);
  SlotCosts costs;
  costs.forward.assign(stages, f);
  costs.input.assign(stages, i);
  costs.weight.assign(stages, w);
  if (p2p > 0) costs.p2p.assign(stages, p2p);
  costs.apart = true;
  return costs;
}

SlotResult replay(const SlotOrder& order, const SlotCosts& costs) {
  SlotWorkspace workspace;
  SlotResult result;
  replay_slots(order, costs, workspace, result);
  return result;
}

SlotResult replay(const char* id, const ScheduleShape& shape, const SlotCosts& costs, bool blocking = false) {
  return replay(make_slot_order(*schedules().find(id), shape, blocking), costs);
}

/// Seconds per step when many follow one another, each stage starting the next as soon as it has ended the one before.
double repeated(const SlotOrder& order, SlotCosts costs) {
  constexpr int kSteps = 40;
  SlotResult result = replay(order, costs);
  double half = 0;
  for (int step = 1; step < kSteps; ++step) {
    if (step == kSteps / 2) half = result.stage_end[0];
    costs.start = result.stage_end;
    result = replay(order, costs);
  }
  return (result.stage_end[0] - half) / (kSteps - kSteps / 2);
}

// Qi et al. 2023, arXiv:2401.10241, section 4: ZB-H2 has no bubble at all once stages do not meet before the optimizer:
// m (f + i + w), where the makespan over all stages is (p - 1) f more; ZB-H1 keeps (p - 1)(f + i - w).
TEST(StepsApart, ZeroBubbleH2HasNoBubbleAndH1KeepsItsOwn) {
  EXPECT_NEAR(replay("zb-h2", {4, 1, 8}, even({4, 1, 8}, 1, 1, 1)).seconds, 24, kRounding);
  EXPECT_NEAR(replay("zb-h2", {8, 1, 32}, even({8, 1, 32}, 1, 1, 1)).seconds, 96, kRounding);
  EXPECT_NEAR(replay("zb-h1", {4, 1, 8}, even({4, 1, 8}, 1, 1, 1)).seconds, 27, kRounding);
  EXPECT_NEAR(replay("zb-h1", {8, 1, 32}, even({8, 1, 32}, 1, 1, 1)).seconds, 103, kRounding);
  SlotCosts together = even({4, 1, 8}, 1, 1, 1);
  together.apart = false;
  EXPECT_NEAR(replay("zb-h2", {4, 1, 8}, together).seconds, 27, kRounding);
}

// The input of a stage's first forward comes while it ends the step before: its transfer is hidden too.
TEST(StepsApart, TheFirstTransferIsNoPartOfAStep) {
  const ScheduleShape shape{4, 1, 16};
  SlotCosts costs = even(shape, 1, 1, 1, 0.1);
  // The first stage waits for its first gradient, which has come over three boundaries and back.
  EXPECT_NEAR(replay("zb-h2", shape, costs).seconds, 48 + 6 * 0.1, kRounding);
  costs.tail = {0, 0, 0, 2}; // the last stage never waits between its slots
  EXPECT_NEAR(replay("zb-h2", shape, costs).seconds, 48 + 2, kRounding);
}

TEST(StepsApart, BubblesAreOfTheStepAndNeverNegative) {
  const ScheduleShape shape{4, 1, 8};
  SlotCosts costs = even(shape, 1, 1, 1);
  costs.tail = {1, 0, 0, 0.5};
  const SlotResult result = replay("zb-h2", shape, costs);
  EXPECT_NEAR(result.seconds, 25, kRounding);
  const std::vector<double> bubbles{0, 1, 1, 0.5};
  for (std::size_t stage = 0; stage < bubbles.size(); ++stage)
    EXPECT_NEAR(result.bubble[stage], bubbles[stage], kRounding) << stage;
}

TEST(StepsApart, WhatAStageDoesBeforeItsFirstForwardIsItsOwn) {
  const ScheduleShape shape{4, 1, 8};
  SlotCosts costs = even(shape, 1, 1, 1);
  costs.start = {0, 0, 0.5, 0}; // over before its input comes; in the next step it begins when the one before has ended
  EXPECT_NEAR(replay("zb-h2", shape, costs).seconds, 24.5, kRounding);
}

// Steps can follow one another as often as that, and no more often where the stage of the longest span is the first or
// waits for nothing.
TEST(StepsApart, TheLongestSpanIsWhatStepsTakeOneAfterTheOther) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> share(0.8, 1.25);
  int reached = 0;
  for (const char* id : {"zb-h1", "zb-h2"})
    for (const int stages : {2, 3, 4, 8})
      for (const int micro_batches : {1, 3, 8, 16, 33})
        for (const bool blocking : {false, true})
          for (int round = 0; round < 6; ++round) {
            const ScheduleShape shape{stages, 1, micro_batches};
            const Schedule& schedule = *schedules().find(id);
            if (blocking && schedule.legal_blocking(shape)) continue;
            SlotCosts costs = even(shape, 1, 1, 1, round % 2 == 0 ? 0.05 : 0);
            if (round > 1)
              for (auto* list : {&costs.forward, &costs.input, &costs.weight})
                for (double& seconds : *list) seconds *= share(random);
            costs.tail.assign(static_cast<std::size_t>(stages), 0.5);
            const SlotOrder order = make_slot_order(schedule, shape, blocking);
            const SlotResult result = replay(order, costs);
            const double often = repeated(order, costs);
            SCOPED_TRACE(testing::Message() << id << " stages " << stages << " micro-batches " << micro_batches
                                            << " round " << round << (blocking ? " blocking" : ""));
            ASSERT_LE(often, result.seconds * (1 + kRounding));
            const auto least = std::min_element(result.bubble.begin(), result.bubble.end()) - result.bubble.begin();
            const bool first = std::abs(result.stage_end[0] - result.seconds) < kRounding;
            if (!first && result.bubble[static_cast<std::size_t>(least)] > kRounding) continue;
            ++reached;
            ASSERT_NEAR(often, result.seconds, kRounding * result.seconds);
          }
  EXPECT_GT(reached, 200);
}

} // namespace
} // namespace foretrain
