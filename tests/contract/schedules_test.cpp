#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"
#include "simulator/slots.h"

/// What every schedule of the catalogue promises, over many shapes.
namespace foretrain {
namespace {

std::vector<ScheduleShape> shapes() {
  std::vector<ScheduleShape> result;
  for (int p : {1, 2, 3, 4, 5, 7, 8, 16})
    for (int chunks : {1, 2, 3, 4, 7})
      for (int m : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16, 17, 24, 32, 33, 64}) {
        result.push_back({p, chunks, m, 0});
        for (int group : {5, 6, 9, 12}) result.push_back({p, chunks, m, group});
      }
  return result;
}

class ScheduleContract : public testing::TestWithParam<std::string> {
protected:
  const Schedule& schedule() const { return *schedules().find(GetParam()); }
  /// Runs `check` for each legal shape, naming the shape when it fails.
  template <class Check> void for_each_legal(Check check) const {
    int legal = 0;
    for (const ScheduleShape& shape : shapes()) {
      if (schedule().legal(shape)) continue;
      ++legal;
      SCOPED_TRACE(fmt::format("stages {} chunks {} micro-batches {} group {}", shape.stages, shape.chunks,
                               shape.micro_batches, shape.group));
      check(shape);
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GE(legal, 100);
  }
};

TEST_P(ScheduleContract, EveryMicroBatchPassesEveryChunkOnceInEachDirection) {
  for_each_legal([&](const ScheduleShape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      std::map<std::tuple<Pass, int, int>, int> seen;
      for (const ScheduleSlot& slot : schedule().order(shape, stage)) ++seen[{slot.pass, slot.chunk, slot.micro_batch}];
      const std::vector<Pass> passes = schedule().splits_backward()
                                           ? std::vector<Pass>{Pass::forward, Pass::input, Pass::weight}
                                           : std::vector<Pass>{Pass::forward, Pass::backward};
      std::size_t expected = 0;
      for (Pass pass : passes)
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
          for (int j = 0; j < shape.micro_batches; ++j, ++expected) ASSERT_EQ((seen[{pass, chunk, j}]), 1);
      ASSERT_EQ(seen.size(), expected);
    }
  });
}

// Ranks that run their slots in order, each waiting for its input: nobody waits for ever.
TEST_P(ScheduleContract, InOrderRanksFinish) {
  for_each_legal([&](const ScheduleShape& shape) {
    const int depths = shape.stages * shape.chunks;
    std::vector<std::vector<ScheduleSlot>> orders;
    for (int stage = 0; stage < shape.stages; ++stage) orders.push_back(schedule().order(shape, stage));
    std::map<std::tuple<Pass, int, int>, bool> done; // pass, depth, micro-batch
    std::vector<std::size_t> next(orders.size(), 0);
    const Pass gradient = schedule().splits_backward() ? Pass::input : Pass::backward;
    const auto can_run = [&](int stage, const ScheduleSlot& slot) {
      const int depth = slot.chunk * shape.stages + stage;
      if (slot.pass == Pass::weight) return done.count({Pass::input, depth, slot.micro_batch}) == 1;
      if (slot.pass == Pass::forward)
        return depth == 0 || done.count({Pass::forward, depth - 1, slot.micro_batch}) == 1;
      return done.count({Pass::forward, depth, slot.micro_batch}) == 1 &&
             (depth == depths - 1 || done.count({gradient, depth + 1, slot.micro_batch}) == 1);
    };
    for (bool progress = true; progress;) {
      progress = false;
      for (int stage = 0; stage < shape.stages; ++stage) {
        const auto& order = orders[static_cast<std::size_t>(stage)];
        auto& at = next[static_cast<std::size_t>(stage)];
        for (; at < order.size() && can_run(stage, order[at]); ++at, progress = true)
          done[{order[at].pass, order[at].chunk * shape.stages + stage, order[at].micro_batch}] = true;
      }
    }
    for (int stage = 0; stage < shape.stages; ++stage)
      ASSERT_EQ(next[static_cast<std::size_t>(stage)], orders[static_cast<std::size_t>(stage)].size())
          << "stage " << stage << " is stuck";
  });
}

TEST_P(ScheduleContract, RetainsAsMuchAsItSays) {
  for_each_legal([&](const ScheduleShape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      int now = 0;
      int peak = 0;
      for (const ScheduleSlot& slot : schedule().order(shape, stage)) {
        if (slot.pass == Pass::forward) peak = std::max(peak, ++now);
        if (slot.pass == (schedule().splits_backward() ? Pass::weight : Pass::backward)) --now;
      }
      ASSERT_EQ(peak, schedule().peak_in_flight(shape, stage)) << "stage " << stage;
      ASSERT_EQ(now, 0);
    }
  });
}

// Transfers over a boundary arrive in the order in which they are sent: the receiver takes them as the sender makes
// them.
TEST_P(ScheduleContract, ReceivesComeInTheOrderOfTheSends) {
  for_each_legal([&](const ScheduleShape& shape) {
    const int depths = shape.stages * shape.chunks;
    using Transfers = std::vector<std::tuple<int, int>>; // depth of the sender, micro-batch
    for (int stage = 0; stage < shape.stages && shape.stages > 1; ++stage) {
      const int next = (stage + 1) % shape.stages;
      Transfers sent, received, gradients_sent, gradients_received;
      for (const ScheduleSlot& slot : schedule().order(shape, stage)) {
        const int depth = slot.chunk * shape.stages + stage;
        if (depth == depths - 1) continue;
        if (slot.pass == Pass::forward) sent.emplace_back(depth, slot.micro_batch);
        if (slot.pass == Pass::backward || slot.pass == Pass::input)
          gradients_received.emplace_back(depth + 1, slot.micro_batch);
      }
      for (const ScheduleSlot& slot : schedule().order(shape, next)) {
        const int depth = slot.chunk * shape.stages + next;
        if (depth == 0) continue;
        if (slot.pass == Pass::forward) received.emplace_back(depth - 1, slot.micro_batch);
        if (slot.pass == Pass::backward || slot.pass == Pass::input)
          gradients_sent.emplace_back(depth, slot.micro_batch);
      }
      ASSERT_EQ(sent, received) << "boundary after stage " << stage;
      ASSERT_EQ(gradients_sent, gradients_received) << "boundary after stage " << stage;
    }
  });
}

// The replay aborts on a circular wait, so that these pass is the claim.
TEST_P(ScheduleContract, BothWaysOfTransferringFinish) {
  for_each_legal([&](const ScheduleShape& shape) {
    const std::size_t chunks = static_cast<std::size_t>(shape.stages * shape.chunks);
    SlotCosts costs;
    costs.forward.assign(chunks, 1.0);
    if (schedule().splits_backward())
      costs.input = costs.weight = costs.forward;
    else
      costs.backward.assign(chunks, 2.0);
    costs.p2p.assign(static_cast<std::size_t>(shape.stages), 0.25);
    SlotWorkspace workspace;
    SlotResult free, blocking;
    replay_slots(make_slot_order(schedule(), shape, false), costs, workspace, free);
    ASSERT_GE(free.seconds, 3.0 * shape.micro_batches * shape.chunks);
    if (schedule().legal_blocking(shape)) return;
    replay_slots(make_slot_order(schedule(), shape, true), costs, workspace, blocking);
    ASSERT_GE(blocking.seconds, free.seconds);
  });
}

INSTANTIATE_TEST_SUITE_P(Catalogue, ScheduleContract, testing::ValuesIn(schedules().ids()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

} // namespace
} // namespace foretrain
