#include "simulator/steady_replay.h"

#include <cmath>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"

namespace foretrain {
namespace {

/// Durations of a sixteenth of a second and more: sums are exact, so that a replay of every slot is the exact answer.
SlotCosts random_costs(const ScheduleShape& shape, std::mt19937& random) {
  const auto chunks = static_cast<std::size_t>(shape.stages) * static_cast<std::size_t>(shape.chunks);
  const auto list = [&](std::size_t count, int most) {
    std::vector<double> values(count);
    for (double& value : values) value = std::uniform_int_distribution<int>(0, most)(random) / 16.0;
    return values;
  };
  SlotCosts costs;
  costs.forward = list(chunks, 40);
  costs.backward = list(chunks, 80);
  costs.input = list(chunks, 40);
  costs.weight = list(chunks, 40);
  costs.first_forward = list(chunks, 9);
  costs.last_backward = list(chunks, 9);
  costs.start = list(static_cast<std::size_t>(shape.stages), 30);
  costs.tail = list(static_cast<std::size_t>(shape.stages), 30);
  costs.p2p = list(static_cast<std::size_t>(shape.stages), 5);
  return costs;
}

double whole_replay(const Schedule& schedule, const ScheduleShape& shape, bool blocking, const SlotCosts& costs) {
  SlotWorkspace workspace;
  SlotResult result;
  replay_slots(make_slot_order(schedule, shape, blocking), costs, workspace, result);
  return result.seconds;
}

TEST(SteadyReplay, EqualsAReplayOfEverySlot) {
  std::mt19937 random(5);
  int with_rounds = 0;
  for (const auto& schedule : schedules())
    for (const int stages : {1, 2, 3, 4, 7, 8})
      for (const int chunks : {1, 2, 3, 5})
        for (const int micro_batches : {1, 2, 4, 8, 13, 16, 21, 40, 56, 64, 97, 128, 168})
          for (const bool blocking : {false, true}) {
            ScheduleShape shape{stages, chunks, micro_batches};
            if (schedule->by_cost()) shape.weights = {16, 18, 9, 7};
            if (schedule->legal(shape) || (blocking && (stages == 1 || schedule->legal_blocking(shape)))) continue;
            SteadyTable table;
            const SteadyOrder& order = table.get(*schedule, shape, blocking);
            with_rounds += order.rounds > 0 ? 1 : 0;
            std::vector<SlotCosts> costs;
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
              costs.push_back(random_costs(shape, random));
              costs.back().apart = (stages + micro_batches) % 2 == 1;
            }
            std::vector<const SlotCosts*> lanes;
            for (const SlotCosts& own : costs) lanes.push_back(&own);
            SteadyWorkspace workspace;
            const LaneTimes times = steady_seconds(order, micro_batches, lanes, workspace);
            for (std::size_t lane = 0; lane < kLanes; ++lane)
              ASSERT_EQ(times[lane], whole_replay(*schedule, shape, blocking, costs[lane]))
                  << schedule->id() << " stages " << stages << " chunks " << chunks << " micro-batches "
                  << micro_batches << (blocking ? " blocking" : "");
          }
  EXPECT_GT(with_rounds, 300);
}

// Groups of another size than the stages are rounds of their own length; tables tell them apart.
TEST(SteadyReplay, EqualsAReplayOfEverySlotInGroups) {
  std::mt19937 random(6);
  const Schedule& schedule = *schedules().find("interleaved");
  SteadyTable table;
  int with_rounds = 0;
  int compared = 0;
  for (const int stages : {2, 3, 4, 7})
    for (const int chunks : {2, 3, 5})
      for (const int group : {0, 3, 4, 5, 9, 16})
        for (const int micro_batches : {5, 8, 10, 14, 18, 25, 40, 64, 97, 128, 168}) {
          const ScheduleShape shape{stages, chunks, micro_batches, group};
          if (schedule.legal(shape)) continue;
          for (const bool remembers : {false, true}) {
            const SteadyOrder& order = table.get(schedule, shape, false, remembers);
            with_rounds += order.rounds > 0 ? 1 : 0;
            const SlotCosts costs = random_costs(shape, random);
            SteadyWorkspace workspace;
            ASSERT_EQ(steady_seconds(order, micro_batches, {&costs}, workspace)[0],
                      whole_replay(schedule, shape, false, costs))
                << "stages " << stages << " chunks " << chunks << " micro-batches " << micro_batches << " group "
                << group;
            ++compared;
          }
        }
  EXPECT_GT(compared, 400);
  EXPECT_GT(with_rounds, compared / 2);
}

TEST(SteadyReplay, FindsTheRoundsOfLongPipelines) {
  for (const auto& schedule : schedules()) {
    if (schedule->id() == "gpipe") continue; // all forwards, then all backwards: nothing that one round could repeat
    for (const bool blocking : {false, true}) {
      ScheduleShape shape{8, schedule->id() == "interleaved" ? 4 : 1, 256};
      if (schedule->by_cost()) shape.weights = {16, 18, 9, 7};
      if (blocking && schedule->legal_blocking(shape)) continue;
      const auto order = make_steady_order(*schedule, shape, blocking);
      ASSERT_TRUE(order) << schedule->id();
      EXPECT_LE(order->shape.micro_batches, 64) << schedule->id();
    }
  }
  EXPECT_FALSE(make_steady_order(*schedules().find("gpipe"), {8, 1, 256}, false));
  const auto grouped = make_steady_order(*schedules().find("interleaved"), {8, 4, 250, 10}, false);
  ASSERT_TRUE(grouped);
  EXPECT_EQ(grouped->per_round, 10);
  EXPECT_LE(grouped->shape.micro_batches, 70);
}

// A lane's result is its own: it depends neither on the others nor on where it stands.
TEST(SteadyReplay, LanesDoNotTouchEachOther) {
  std::mt19937 random(9);
  const Schedule& schedule = *schedules().find("1f1b");
  const ScheduleShape shape{6, 1, 90};
  SteadyTable table;
  const SteadyOrder& order = table.get(schedule, shape, true);
  SteadyWorkspace workspace;
  std::vector<SlotCosts> costs;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    costs.push_back(random_costs(shape, random));
    for (double& value : costs.back().forward) value *= 0.1 + 1e-7 * static_cast<double>(lane); // sums that round
  }
  const LaneTimes together = steady_seconds(order, 90, {&costs[0], &costs[1], &costs[2], &costs[3]}, workspace);
  const LaneTimes turned = steady_seconds(order, 90, {&costs[3], &costs[2], &costs[1], &costs[0]}, workspace);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(together[lane], turned[kLanes - 1 - lane]);
    EXPECT_EQ(together[lane], steady_seconds(order, 90, {&costs[lane]}, workspace)[0]);
  }
}

TEST(SteadyReplay, RoundsToAGridThatHoldsTheWholeStep) {
  for (const double seconds : {1e-6, 0.7, 1.0, 1.5, 4096.0, 1e6}) {
    const double grid = time_grid(seconds);
    EXPECT_LE(seconds / grid, 0x1p51);
    EXPECT_GE(seconds / grid, 0x1p50);
    for (const double part : {0.1, 1.0 / 3, 0.999}) {
      const double rounded = on_grid(part * seconds, grid);
      EXPECT_EQ(std::fmod(rounded, grid), 0);
      EXPECT_LE(std::abs(rounded - part * seconds), grid / 2);
    }
  }
}

} // namespace
} // namespace foretrain
