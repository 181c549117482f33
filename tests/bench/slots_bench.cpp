#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/program/schedules/schedule.h"
#include "simulator/slot_memory.h"
#include "simulator/slots.h"

/// Time per slot of replay, memory and building, for every schedule. "ns/slot" is over all slots of all stages.
namespace foretrain {
namespace {

struct Setup {
  const Schedule& schedule;
  ScheduleShape shape;
  bool blocking;

  SlotCosts costs() const {
    const std::size_t chunks = static_cast<std::size_t>(shape.stages * shape.chunks);
    SlotCosts result;
    result.forward.assign(chunks, 1.0);
    result.backward.assign(chunks, 2.0);
    result.input.assign(chunks, 1.1);
    result.weight.assign(chunks, 0.9);
    result.p2p.assign(static_cast<std::size_t>(shape.stages), 0.1);
    result.tail.assign(static_cast<std::size_t>(shape.stages), 0.5);
    return result;
  }
  SlotMemories memories() const {
    const std::size_t chunks = static_cast<std::size_t>(shape.stages * shape.chunks);
    SlotMemories result;
    result.forward.assign(chunks, {Bytes(100), Bytes(120)});
    result.backward.assign(chunks, {Bytes(-100), Bytes(50)});
    result.input.assign(chunks, {Bytes(-60), Bytes(50)});
    result.weight.assign(chunks, {Bytes(-40), Bytes(10)});
    return result;
  }
};

void count(benchmark::State& state, std::size_t slots) {
  state.counters["ns/slot"] = benchmark::Counter(
      static_cast<double>(slots) * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["slots"] = static_cast<double>(slots);
}

void replay(benchmark::State& state, const Setup& setup) {
  const SlotOrder order = make_slot_order(setup.schedule, setup.shape, setup.blocking);
  SlotCosts costs = setup.costs();
  SlotWorkspace workspace;
  SlotResult result;
  for (auto _ : state) {
    costs.forward[0] += 1e-9;
    replay_slots(order, costs, workspace, result);
    benchmark::DoNotOptimize(result.seconds);
  }
  count(state, order.slots.size());
}

void memory(benchmark::State& state, const Setup& setup) {
  const SlotOrder order = make_slot_order(setup.schedule, setup.shape, setup.blocking);
  const SlotMemories memories = setup.memories();
  for (auto _ : state)
    for (std::size_t stage = 0; stage < order.stages(); ++stage)
      benchmark::DoNotOptimize(slot_peak(order, memories, stage));
  count(state, order.slots.size());
  state.counters["visited"] = static_cast<double>(order.fold_slot.size());
}

void build(benchmark::State& state, const Setup& setup) {
  for (auto _ : state)
    benchmark::DoNotOptimize(make_slot_order(setup.schedule, setup.shape, setup.blocking).slots.size());
  count(state, make_slot_order(setup.schedule, setup.shape, setup.blocking).slots.size());
}

const bool registered = [] {
  for (const auto& schedule : schedules())
    for (const ScheduleShape shape : {ScheduleShape{4, 1, 8}, ScheduleShape{8, 1, 32}, ScheduleShape{16, 1, 256},
                                      ScheduleShape{8, 4, 32}, ScheduleShape{16, 8, 256}})
      for (const bool blocking : {false, true}) {
        if (schedule->legal(shape) || (blocking && schedule->legal_blocking(shape))) continue;
        const Setup setup{*schedule, shape, blocking};
        const std::string name = std::string(schedule->id()) + "/p" + std::to_string(shape.stages) + "/v" +
                                 std::to_string(shape.chunks) + "/m" + std::to_string(shape.micro_batches) +
                                 (blocking ? "/blocking" : "");
        benchmark::RegisterBenchmark(("replay/" + name).c_str(), replay, setup);
        if (blocking) continue;
        benchmark::RegisterBenchmark(("memory/" + name).c_str(), memory, setup);
        benchmark::RegisterBenchmark(("build/" + name).c_str(), build, setup);
      }
  return true;
}();

} // namespace
} // namespace foretrain
