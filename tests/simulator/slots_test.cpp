#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"
#include "simulator/slots.h"

namespace foretrain {
namespace {

const Schedule& schedule(const std::string& id) {
  return *schedules().find(id);
}

/// Costs of a model that takes f, i and w per stage, cut evenly into chunks.
SlotCosts even(const ScheduleShape& shape, double f, double i, double w, double p2p = 0) {
  const std::size_t chunks = static_cast<std::size_t>(shape.stages * shape.chunks);
  SlotCosts costs;
  costs.forward.assign(chunks, f / shape.chunks);
  costs.backward.assign(chunks, (i + w) / shape.chunks);
  costs.input.assign(chunks, i / shape.chunks);
  costs.weight.assign(chunks, w / shape.chunks);
  if (p2p > 0) costs.p2p.assign(static_cast<std::size_t>(shape.stages), p2p);
  return costs;
}

SlotResult replay(const std::string& id, const ScheduleShape& shape, const SlotCosts& costs, bool blocking = false) {
  SlotWorkspace workspace;
  SlotResult result;
  replay_slots(make_slot_order(schedule(id), shape, blocking), costs, workspace, result);
  return result;
}

constexpr double kRounding = 1e-9;

struct Row {
  const char* id;
  int chunks;
  double small; ///< p 4, m 8
  double large; ///< p 8, m 32
};
double makespan(const Row& row, int p, int m, double f, double i, double w, double p2p) {
  const ScheduleShape shape{p, row.chunks, m, 0};
  return replay(row.id, shape, even(shape, f, i, w, p2p)).seconds;
}

// Makespans from an independent dependency simulator; they equal the closed forms m (f + i + w) + bubble with bubble
// (p - 1)(f + i + w) / v for GPipe (arXiv:1811.06965), 1F1B and interleaved 1F1B (arXiv:2104.04473), and
// m (f + i + w) + (p - 1) f for ZB-H2, (p - 1)(f + i - w) for ZB-H1 (arXiv:2401.10241).
TEST(Slots, MakespansOfUnitCostsAreThePublishedOnes) {
  for (const Row& row : {Row{"gpipe", 1, 33, 117}, Row{"1f1b", 1, 33, 117}, Row{"interleaved", 2, 28.5, 106.5},
                         Row{"interleaved", 4, 26.25, 101.25}, Row{"zb-h1", 1, 27, 103}, Row{"zb-h2", 1, 27, 103}}) {
    EXPECT_NEAR(makespan(row, 4, 8, 1, 1, 1, 0), row.small, kRounding) << row.id << " " << row.chunks;
    EXPECT_NEAR(makespan(row, 8, 32, 1, 1, 1, 0), row.large, kRounding) << row.id << " " << row.chunks;
  }
}

TEST(Slots, UnequalBackwardHalvesMatterToZeroBubbleOnly) {
  for (const Row& row :
       {Row{"gpipe", 1, 33, 117}, Row{"1f1b", 1, 33, 117}, Row{"interleaved", 2, 28.5, 106.5},
        Row{"interleaved", 4, 26.25, 101.25}, Row{"zb-h1", 1, 28.2, 105.8}, Row{"zb-h2", 1, 27, 103}}) {
    EXPECT_NEAR(makespan(row, 4, 8, 1, 1.2, 0.8, 0), row.small, kRounding) << row.id << " " << row.chunks;
    EXPECT_NEAR(makespan(row, 8, 32, 1, 1.2, 0.8, 0), row.large, kRounding) << row.id << " " << row.chunks;
  }
}

// The same simulator with 0.1 between stages, beside compute: 1F1B pays about 2c per steady step, GPipe only at its
// ends.
TEST(Slots, LatencyCostsOneFOneBMoreThanGpipe) {
  for (const Row& row :
       {Row{"gpipe", 1, 33.6, 118.4}, Row{"1f1b", 1, 34.6, 123.8}, Row{"interleaved", 2, 29.9, 109.5},
        Row{"interleaved", 4, 29.25, 107.45}, Row{"zb-h1", 1, 28.2, 105.8}, Row{"zb-h2", 1, 27.3, 103.7}}) {
    EXPECT_NEAR(makespan(row, 4, 8, 1, 1, 1, 0.1), row.small, kRounding) << row.id << " " << row.chunks;
    EXPECT_NEAR(makespan(row, 8, 32, 1, 1, 1, 0.1), row.large, kRounding) << row.id << " " << row.chunks;
  }
}

TEST(Slots, ZeroBubbleH2HasNoBubbleInsideAStage) {
  const ScheduleShape shape{4, 1, 8, 0};
  const SlotResult result = replay("zb-h2", shape, even(shape, 1, 1, 1));
  EXPECT_EQ(result.stage_end, (std::vector<double>{24, 25, 26, 27}));
  EXPECT_EQ(result.busy, (std::vector<double>{24, 24, 24, 24}));
}

// pytorch/torchtitan#775: 1 micro-batch on 8 stages; the replay ends, with (m + p - 1)(f + b).
TEST(Slots, FewerMicroBatchesThanStagesEnd) {
  for (int m = 1; m < 8; ++m) {
    const ScheduleShape shape{8, 1, m, 0};
    EXPECT_NEAR(replay("1f1b", shape, even(shape, 1, 1, 1)).seconds, 3.0 * (m + 7), kRounding);
    EXPECT_NEAR(replay("gpipe", shape, even(shape, 1, 1, 1)).seconds, 3.0 * (m + 7), kRounding);
  }
}

TEST(Slots, TheSlowestStagePacesTheSteadyState) {
  const ScheduleShape shape{4, 1, 64, 0};
  SlotCosts costs = even(shape, 1, 1, 1);
  costs.forward[2] = 1.5; // F + B of stage 2: 4.2
  costs.backward[2] = 2.7;
  // Stage 2 gets its first micro-batch at 2, runs F0 F1 until 5, waits for B0 of stage 3 (3.5 + 1 + 2) until 6.5; then
  // it never waits until its last B, for which stage 3 needs 3 beside a B of 2.7. Two backwards of 2 follow below.
  EXPECT_NEAR(replay("1f1b", shape, costs).seconds, 2 + 1.5 + 64 * 4.2 + 0.3 + 4, kRounding);
}

TEST(Slots, ExtrasAreAddedOnceWhereTheyBelong) {
  const ScheduleShape shape{4, 1, 8, 0};
  const SlotCosts plain = even(shape, 1, 1, 1);
  for (const char* id : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    const SlotResult base = replay(id, shape, plain);
    SlotCosts costs = plain;
    costs.tail = {0, 0, 0, 5};
    EXPECT_NEAR(replay(id, shape, costs).stage_end[3], base.stage_end[3] + 5, kRounding);
    EXPECT_NEAR(replay(id, shape, costs).stage_end[0], base.stage_end[0], kRounding);
    costs = plain;
    costs.last_backward = {0.5, 0, 0, 0};
    EXPECT_NEAR(replay(id, shape, costs).stage_end[0], base.stage_end[0] + 0.5, kRounding) << id;
    EXPECT_NEAR(replay(id, shape, costs).busy[0], 24.5, kRounding) << id;
    costs = plain;
    costs.first_forward = {0.5, 0, 0, 0};
    EXPECT_NEAR(replay(id, shape, costs).seconds, base.seconds + 0.5, kRounding) << id;
    costs = plain;
    costs.start = {2, 0, 0, 0};
    EXPECT_NEAR(replay(id, shape, costs).seconds, base.seconds + 2, kRounding) << id;
  }
}

/// Random costs of every chunk and boundary.
SlotCosts uneven(const ScheduleShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(0.1, 2.0);
  SlotCosts costs = even(shape, 1, 1, 1, 1);
  for (auto* table : {&costs.forward, &costs.backward, &costs.input, &costs.weight, &costs.p2p})
    for (double& value : *table) value = draw(random);
  costs.start.assign(costs.p2p.size(), 0);
  for (double& value : costs.start) value = draw(random);
  return costs;
}

/// Slow and plain: asks each stage in turn whether its next slot can run, by the dependencies as schedule.h states
/// them.
std::vector<double> reference(const Schedule& plan, const ScheduleShape& shape, const SlotCosts& costs) {
  const int depths = shape.stages * shape.chunks;
  std::map<std::tuple<Pass, int, int>, double> ends;
  std::vector<std::vector<ScheduleSlot>> orders;
  for (int stage = 0; stage < shape.stages; ++stage) orders.push_back(plan.order(shape, stage));
  std::vector<double> clock = costs.start;
  std::vector<std::size_t> next(clock.size(), 0);
  const Pass gradient = plan.splits_backward() ? Pass::input : Pass::backward;
  for (bool progress = true; progress;) {
    progress = false;
    for (int i = 0; i < shape.stages; ++i) {
      const std::size_t stage = static_cast<std::size_t>(i);
      if (next[stage] == orders[stage].size()) continue;
      const ScheduleSlot slot = orders[stage][next[stage]];
      const int depth = slot.chunk * shape.stages + i;
      double ready = 0;
      std::optional<std::tuple<Pass, int, int>> input;
      double transfer = 0;
      if (slot.pass == Pass::forward && depth > 0) {
        input = {Pass::forward, depth - 1, slot.micro_batch};
        transfer = costs.p2p[static_cast<std::size_t>((i + shape.stages - 1) % shape.stages)];
      }
      if (slot.pass == gradient && depth < depths - 1) {
        input = {gradient, depth + 1, slot.micro_batch};
        transfer = costs.p2p[stage];
      }
      if (input) {
        const auto found = ends.find(*input);
        if (found == ends.end()) continue;
        ready = found->second + transfer;
      }
      const std::size_t chunk = static_cast<std::size_t>(i * shape.chunks + slot.chunk);
      const auto& table = slot.pass == Pass::forward    ? costs.forward
                          : slot.pass == Pass::backward ? costs.backward
                          : slot.pass == Pass::input    ? costs.input
                                                        : costs.weight;
      clock[stage] = std::max(clock[stage], ready) + table[chunk];
      ends[{slot.pass, depth, slot.micro_batch}] = clock[stage];
      ++next[stage];
      progress = true;
    }
  }
  return clock;
}

TEST(Slots, EqualTheReferenceBitForBit) {
  int compared = 0;
  for (const auto& entry : schedules())
    for (int p : {2, 3, 4, 8})
      for (int chunks : {1, 2, 3})
        for (int m : {1, 2, 5, 8, 12, 24, 40}) {
          const ScheduleShape shape{p, chunks, m, 0};
          if (entry->legal(shape)) continue;
          const SlotCosts costs = uneven(shape, static_cast<unsigned>(p * 1000 + m));
          EXPECT_EQ(replay(std::string(entry->id()), shape, costs).stage_end, reference(*entry, shape, costs))
              << entry->id() << " p " << p << " v " << chunks << " m " << m;
          ++compared;
        }
  EXPECT_GT(compared, 100);
}

/// Megatron's forward_backward_pipelining_without_interleaving, call by call: each call is a batch of transfers with
/// one peer that ends for both sides `p2p` after both have come to it.
struct Call {
  int peer;        ///< -1 previous, +1 next, 0: a slot
  double cost = 0; ///< of a slot
};
std::vector<Call> megatron_calls(int p, int m, int rank, double f, double b) {
  std::vector<Call> calls;
  const auto compute = [&](double cost) { calls.push_back({0, cost}); };
  const auto with_previous = [&] {
    if (rank > 0) calls.push_back({-1});
  };
  const auto with_next = [&] {
    if (rank < p - 1) calls.push_back({+1});
  };
  const int warm = std::min(p - rank - 1, m);
  const int remaining = m - warm;
  for (int j = 0; j < warm; ++j) {
    with_previous(); // recv_forward
    compute(f);
    with_next(); // send_forward
  }
  if (remaining > 0) with_previous(); // recv_forward
  for (int q = 0; q < remaining; ++q) {
    compute(f);
    with_next(); // send_forward_recv_backward
    compute(b);
    with_previous(); // send_backward_recv_forward, or send_backward in the last iteration
  }
  for (int j = 0; j < warm; ++j) {
    with_next(); // recv_backward
    compute(b);
    with_previous(); // send_backward
  }
  return calls;
}
double megatron_makespan(int p, int m, double f, double b, double p2p) {
  std::vector<std::vector<Call>> calls;
  for (int rank = 0; rank < p; ++rank) calls.push_back(megatron_calls(p, m, rank, f, b));
  std::vector<double> clock(calls.size(), 0);
  std::vector<std::size_t> next(calls.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      if (next[rank] == calls[rank].size()) continue;
      const Call call = calls[rank][next[rank]];
      if (call.peer == 0) {
        clock[rank] += call.cost;
        ++next[rank];
        progress = true;
      } else if (call.peer == 1) { // calls of a pair match one to one
        const std::size_t peer = rank + 1;
        if (next[peer] == calls[peer].size() || calls[peer][next[peer]].peer != -1) continue;
        clock[rank] = clock[peer] = std::max(clock[rank], clock[peer]) + p2p;
        ++next[rank];
        ++next[peer];
        progress = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < calls.size(); ++rank) EXPECT_EQ(next[rank], calls[rank].size());
  return *std::max_element(clock.begin(), clock.end());
}

TEST(Slots, BlockingOneFOneBRunsAsMegatronCallsIt) {
  for (int p : {1, 2, 3, 4, 8})
    for (int m : {1, 2, 3, 7, 8, 32}) {
      const ScheduleShape shape{p, 1, m, 0};
      EXPECT_NEAR(replay("1f1b", shape, even(shape, 1, 1, 1, 0.1), true).seconds, megatron_makespan(p, m, 1, 2, 0.1),
                  kRounding)
          << p << " " << m;
    }
}

// Two stages, one micro-batch: F, transfer, F, B, transfer, B. Two micro-batches: the second F of stage 0 runs beside
// the first F of stage 1; the exchange after it is one transfer time for both directions.
TEST(Slots, BlockingTransfersOccupyBothEnds) {
  const SlotCosts costs = even({2, 1, 1, 0}, 1, 1, 1, 0.25);
  EXPECT_NEAR(replay("1f1b", {2, 1, 1, 0}, costs, true).seconds, 1 + 0.25 + 1 + 2 + 0.25 + 2, kRounding);
  // stage 0: F0 1, send 1.25, F1 2.25, exchange with stage 1 (at 4.25 after F0 B0) until 4.5, B0 6.5, exchange (stage 1
  // at 7.5 after F1 B1) until 7.75, B1 9.75
  EXPECT_NEAR(replay("1f1b", {2, 1, 2, 0}, costs, true).seconds, 9.75, kRounding);
}

// Interleaved without overlap: every one of the 16 steps of a stage ends with a batch of transfers.
TEST(Slots, BlockingInterleavedPaysOneBatchPerStep) {
  const ScheduleShape shape{4, 2, 8, 0};
  const double free = replay("interleaved", shape, even(shape, 1, 1, 1)).seconds;
  const double paid = replay("interleaved", shape, even(shape, 1, 1, 1, 0.1), true).seconds;
  EXPECT_GT(paid, free + 16 * 0.1);
}

TEST(Slots, TimesOfSlotsAreThoseOfTheReplay) {
  for (const bool blocking : {false, true})
    for (const char* id : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
      const ScheduleShape shape{4, id == std::string("interleaved") ? 2 : 1, 8, 0};
      const SlotCosts costs = uneven(shape, 7);
      const SlotOrder order = make_slot_order(schedule(id), shape, blocking);
      const std::vector<SlotTime> times = slot_times(order, costs);
      const SlotResult result = replay(id, shape, costs, blocking);
      for (std::size_t stage = 0; stage < 4; ++stage) {
        double busy = 0;
        double before = costs.start[stage];
        for (std::size_t s = order.offset[stage]; s < order.offset[stage + 1]; ++s) {
          EXPECT_GE(times[s].start, before);
          before = times[s].end;
          busy += times[s].end - times[s].start;
        }
        EXPECT_NEAR(busy, result.busy[stage], kRounding) << id;
        EXPECT_LE(before, result.stage_end[stage]);
      }
    }
}

TEST(ScheduleTable, ManyThreadsGetTheSameOrders) {
  ScheduleTable table;
  std::vector<const SlotOrder*> got(8, nullptr);
  std::vector<std::thread> threads;
  for (auto& slot : got)
    threads.emplace_back([&table, &slot] {
      for (int m = 1; m < 40; ++m) (void)table.get(schedule("1f1b"), {4, 1, m, 0});
      slot = &table.get(schedule("1f1b"), {4, 1, 17, 0});
    });
  for (std::thread& thread : threads) thread.join();
  for (const SlotOrder* order : got) EXPECT_EQ(order, got.front());
  EXPECT_EQ(got.front()->shape.micro_batches, 17);
  EXPECT_NE(&table.get(schedule("1f1b"), {4, 1, 17, 0}, true), got.front());
}

} // namespace
} // namespace foretrain
