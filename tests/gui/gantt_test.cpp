// SPDX-License-Identifier: GPL-3.0-or-later
#include <limits>

#include <gtest/gtest.h>

#include "gui/plot/gantt.h"
#include "gui/views/parallel_data.h"
#include "gui/views/timeline_data.h"

namespace foretrain::gui {
namespace {

TEST(LineDensity, CountsEveryLineInEveryColumn) {
  std::vector<ParallelAxis> axes(3);
  axes[0].places = {0, 0, 1, std::numeric_limits<float>::quiet_NaN()};
  axes[1].places = {1, 1, 0, 0.5F};
  axes[2].places = {0.5F, 0.5F, 0.5F, 0.5F};
  constexpr int kWidth = 40;
  constexpr int kHeight = 21;
  const auto counts = line_density(axes, {0, 20, 40}, kWidth, kHeight);
  for (int column = 0; column < kWidth; ++column) {
    std::uint32_t lines = 0;
    for (int row = 0; row < kHeight; ++row) lines += counts[static_cast<std::size_t>(row * kWidth + column)];
    if (column == 20 || column == kWidth - 1) continue;
    EXPECT_EQ(lines, column < 20 ? 3U : 4U) << "a line without a value ends at its axis: column " << column;
  }
  EXPECT_EQ(counts[(kHeight - 1) * kWidth], 2U) << "two alike begin at the foot";
  EXPECT_EQ(counts[0], 1U) << "one at the head";
}

TEST(LineDensity, LinesGoOnWhereAnAxisIsOutsideThePicture) {
  std::vector<ParallelAxis> axes(2);
  axes[0].places = {0};
  axes[1].places = {1};
  constexpr int kWidth = 20;
  constexpr int kHeight = 41;
  const auto counts = line_density(axes, {-20, 20}, kWidth, kHeight); // the left half is not shown
  const auto row_in = [&](int column) {
    for (int row = 0; row < kHeight; ++row)
      if (counts[static_cast<std::size_t>(row * kWidth + column)] > 0) return row;
    return -1;
  };
  EXPECT_EQ(row_in(0), 20) << "half of its height";
  EXPECT_EQ(row_in(10), 10);
}

TEST(ParallelAxes, LogarithmicOnesSpreadFactorsEvenly) {
  ParallelAxis axis;
  axis.low = 1;
  axis.high = 100;
  axis.logarithmic = true;
  EXPECT_DOUBLE_EQ(axis.place(10), 0.5);
  EXPECT_DOUBLE_EQ(axis.value(0.5), 10);
  axis.flipped = true;
  EXPECT_DOUBLE_EQ(axis.place(100), 0);
  EXPECT_DOUBLE_EQ(axis.value(axis.place(37)), 37);
}

TEST(Timeline, AMicroBatchHopsForwardThroughTheChunksAndBack) {
  const auto pass = [](double start, PassKind kind, int micro_batch) {
    return Span{start, start + 1, static_cast<int>(kind), micro_batch, 0};
  };
  Timeline timeline;
  timeline.stages.resize(2); // two chunks each
  timeline.stages[0].passes = {pass(0, PassKind::forward, 0), pass(1, PassKind::forward, 1),
                               pass(4, PassKind::forward, 0), pass(10, PassKind::input, 0),
                               pass(11, PassKind::weight, 0)};
  timeline.stages[1].passes = {pass(2, PassKind::forward, 0), pass(6, PassKind::forward, 0),
                               pass(8, PassKind::input, 0)};
  const std::vector<Hop> hops = {{0, 1, 1, 2}, {1, 3, 0, 4}, {0, 5, 1, 6}, {1, 9, 0, 10}};
  EXPECT_EQ(hops_of(timeline, 0), hops);
  EXPECT_TRUE(hops_of(timeline, 1).empty());
}

/// Two stages whose steps of six seconds begin two seconds apart, as under post-validation of the optimizer.
Simulation staggered() {
  Simulation simulation;
  simulation.step_time = Seconds(6);
  simulation.stages.resize(2);
  const auto pass = [&](int stage, const char* name, double start, double end, int micro_batch) {
    simulation.events.push_back({stage, Lane::compute, TimePart::compute, name, start, end, micro_batch, 0});
  };
  pass(0, "0 F", 0, 2, 0);
  pass(0, "0 B", 4, 6, 0);
  pass(1, "0 F", 2, 5, 0);
  pass(1, "0 B", 5, 8, 0);
  return simulation;
}

TEST(Timeline, StagesThatDoNotWaitHaveStepsOfTheirOwn) {
  const Timeline timeline = timeline_of(staggered(), false);
  EXPECT_TRUE(timeline.apart());
  EXPECT_DOUBLE_EQ(timeline.step, 6);
  EXPECT_DOUBLE_EQ(timeline.end, 8) << "all that is drawn";
  EXPECT_DOUBLE_EQ(timeline.stages[0].begin, 0);
  EXPECT_DOUBLE_EQ(timeline.stages[1].begin, 2);
  EXPECT_DOUBLE_EQ(timeline.stages[0].idle, 2) << "of its own step, not of the eight seconds";
  EXPECT_DOUBLE_EQ(timeline.stages[1].idle, 0);
}

TEST(Timeline, StagesThatEndTogetherHaveOneStep) {
  Simulation simulation = staggered();
  simulation.step_time = Seconds(8 * (1 - 1e-12)); // sums of durations differ in their last digits
  const Timeline timeline = timeline_of(simulation, false);
  EXPECT_FALSE(timeline.apart());
  EXPECT_NEAR(timeline.stages[0].idle, 4, 1e-9);
  EXPECT_DOUBLE_EQ(timeline.stages[1].begin, 0);
}

std::vector<Span> even_lane(int count, double length, double gap) {
  std::vector<Span> lane;
  for (int i = 0; i < count; ++i) lane.push_back({i * (length + gap), i * (length + gap) + length, i % 2, i, i});
  return lane;
}

TEST(Gantt, ShowsWhatIsInTheWindow) {
  const auto lane = even_lane(10, 1, 0.5);
  const auto boxes = visible_boxes(lane, 3.2, 6.1, 0.01); // spans 2 (3 … 4), 3 (4.5 … 5.5), 4 (6 … 7)
  ASSERT_EQ(boxes.size(), 3U);
  EXPECT_EQ(boxes.front().source, 2);
  EXPECT_EQ(boxes.back().source, 4);
}

TEST(Gantt, MergesWhatIsNarrowerThanAPixel) {
  const auto lane = even_lane(100'000, 1e-4, 1e-5);
  const auto boxes = visible_boxes(lane, 0, 11, 0.01);
  EXPECT_LE(boxes.size(), 300U); // of up to four pixels each
  EXPECT_EQ(boxes.front().source, -1);
  EXPECT_NEAR(boxes.front().shares[0], 0.5, 0.02) << "every second span is of kind 0";
}

TEST(Gantt, KeepsGapsOfAPixelAndMore) {
  std::vector<Span> lane = {{0, 0.001, 0, 0, 0}, {0.002, 0.003, 0, 1, 1}, {1, 1.001, 0, 2, 2}};
  EXPECT_EQ(visible_boxes(lane, 0, 2, 0.01).size(), 2U);
}

TEST(Gantt, FindsTheSpanUnderThePointer) {
  const auto lane = even_lane(10, 1, 0.5);
  EXPECT_EQ(span_at(lane, 3.5), 2);
  EXPECT_EQ(span_at(lane, 4.2), -1);
  EXPECT_EQ(span_at(lane, -1), -1);
  EXPECT_EQ(span_at(lane, 99), -1);
}

TEST(Gantt, AddsGapsUp) {
  EXPECT_DOUBLE_EQ(idle_time(even_lane(4, 1, 0.5), 0, 6), 2);
  EXPECT_DOUBLE_EQ(idle_time({}, 0, 6), 6);
}

TEST(Gantt, JoinsTheOpsOfAPass) {
  const std::vector<Span> ops = {{0, 1, 0, 0, 0}, {1, 2, 0, 0, 1}, {2, 3, 1, 0, 2}, {3, 4, 1, 1, 3}, {5, 6, 1, 1, 4}};
  const auto passes = joined(ops, 0.1);
  ASSERT_EQ(passes.size(), 4U);
  EXPECT_DOUBLE_EQ(passes.front().end, 2);
}

} // namespace
} // namespace foretrain::gui
