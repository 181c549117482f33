#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"
#include "simulator/slot_memory.h"

namespace foretrain {
namespace {

SlotMemory memory(std::int64_t net, std::int64_t above) {
  return {Bytes(net), Bytes(std::max<std::int64_t>(net, 0) + above)};
}

/// Random memory per chunk whose passes free what they retain; first and last slots differ.
SlotMemories random_memories(const ScheduleShape& shape, unsigned seed, bool with_extras) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::int64_t> draw(1, 100);
  SlotMemories result;
  for (int chunk = 0; chunk < shape.stages * shape.chunks; ++chunk) {
    const std::int64_t retained = draw(random);
    const std::int64_t kept_for_weights = draw(random) % (retained + 1);
    result.forward.push_back(memory(retained, draw(random)));
    result.backward.push_back(memory(-retained, draw(random)));
    result.input.push_back(memory(kept_for_weights - retained, draw(random)));
    result.weight.push_back(memory(-kept_for_weights, draw(random)));
    if (!with_extras) continue;
    result.first_forward.push_back(memory(retained + draw(random), draw(random)));
    result.last_backward.push_back(memory(-draw(random), draw(random)));
  }
  return result;
}

TEST(SlotMemory, PeakOfUnitChunksIsWhatIsInFlight) {
  for (const auto& entry : schedules()) {
    const ScheduleShape shape{4, entry->takes_chunks() ? 2 : 1, 8, 0};
    const std::size_t chunks = static_cast<std::size_t>(shape.stages * shape.chunks);
    SlotMemories memories;
    memories.forward.assign(chunks, memory(1, 0));
    memories.backward.assign(chunks, memory(-1, 0));
    memories.input.assign(chunks, memory(0, 0));
    memories.weight.assign(chunks, memory(-1, 0));
    const SlotOrder order = make_slot_order(*entry, shape, false);
    for (std::size_t stage = 0; stage < 4; ++stage)
      EXPECT_EQ(slot_peak(order, memories, stage).bytes, Bytes(entry->peak_in_flight(shape, static_cast<int>(stage))))
          << entry->id();
  }
}

// Stage 0 of 1F1B, 3 stages, 4 micro-batches: F0 F1 F2 B0 F3 B1 B2 B3. The first B starts with 3 stashes of 10 and
// needs 7.
TEST(SlotMemory, PeakIsAtTheFirstBackwardWhenItNeedsMore) {
  const ScheduleShape shape{3, 1, 4, 0};
  const SlotOrder order = make_slot_order(*schedules().find("1f1b"), shape, false);
  SlotMemories memories;
  memories.forward.assign(3, memory(10, 2));
  memories.backward.assign(3, memory(-10, 7));
  EXPECT_EQ(slot_peak(order, memories, 0), (SlotPeak{Bytes(37), 3}));
  EXPECT_EQ(slots_before(order, 0, 3), (std::vector<int>{2, 1, 0, 0, 0, 0, 0}));
  memories.forward.assign(3, memory(10, 9));
  EXPECT_EQ(slot_peak(order, memories, 0), (SlotPeak{Bytes(39), 2}));
}

TEST(SlotMemory, CuttingLoopsChangesNothing) {
  int compared = 0;
  for (const auto& entry : schedules())
    for (int p : {1, 2, 3, 4, 8})
      for (int chunks : {1, 2, 3, 4})
        for (int m : {1, 2, 4, 5, 8, 12, 16, 24, 31, 64})
          for (int group : {0, 5}) {
            const ScheduleShape shape{p, chunks, m, group};
            if (entry->legal(shape)) continue;
            const SlotOrder order = make_slot_order(*entry, shape, false);
            for (unsigned seed = 0; seed < 6; ++seed) {
              const SlotMemories memories = random_memories(shape, seed, seed % 2 == 1);
              for (std::size_t stage = 0; stage < order.stages(); ++stage)
                ASSERT_EQ(slot_peak(order, memories, stage), slot_peak_full(order, memories, stage))
                    << entry->id() << " p " << p << " v " << chunks << " m " << m << " stage " << stage;
              ++compared;
            }
          }
  EXPECT_GT(compared, 500);
}

TEST(SlotMemory, TheFoldDoesNotGrowWithTheMicroBatches) {
  for (const auto& entry : schedules()) {
    if (entry->id() == "gpipe") continue; // every one of its states is new
    const int chunks = entry->takes_chunks() ? 4 : 1;
    const SlotOrder small = make_slot_order(*entry, {8, chunks, 64, 0}, false);
    const SlotOrder large = make_slot_order(*entry, {8, chunks, 512, 0}, false);
    EXPECT_EQ(small.fold_slot.size(), large.fold_slot.size()) << entry->id();
    EXPECT_LT(large.fold_slot.size() * 8, large.slots.size()) << entry->id();
  }
}

// A weight-gradient buffer that grows with each backward is no function of what is in flight: all slots are visited.
TEST(SlotMemory, WhatIsNeverFreedIsCounted) {
  const ScheduleShape shape{2, 1, 50, 0};
  const SlotOrder order = make_slot_order(*schedules().find("1f1b"), shape, false);
  SlotMemories memories;
  memories.forward.assign(2, memory(10, 0));
  memories.backward.assign(2, memory(-9, 0));
  EXPECT_EQ(slot_peak(order, memories, 1).bytes, Bytes(49 + 10));
  EXPECT_EQ(slot_peak(order, memories, 1).slot, 98u);
}

} // namespace
} // namespace foretrain
