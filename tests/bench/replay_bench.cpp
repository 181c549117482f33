// Cost of replay at op granularity. Run on an idle machine; the figures of docs/simulators.md come from here.
#include <benchmark/benchmark.h>

#include "core/program/lower.h"
#include "core/spec/calibration.h"
#include "core/spec/presets.h"
#include "simulator/replay.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

/// Llama-3-70B (80 layers), TP8 PP8, 1F1B.
void replay_of_70b(benchmark::State& state) {
  const DataFolder data{test::source_folder() / "data"};
  Plan plan;
  plan.model = data.model("llama3-70b").value();
  plan.cluster = load_cluster(data, "dgx-h100", 64).value();
  plan.job.sequence_length = 8192;
  plan.job.global_batch = state.range(0);
  plan.layout.tp = 8;
  plan.layout.pp = 8;
  plan.layout.sequence_parallel = true;
  const Semantics semantics = data.semantics(plan.job.semantics).value();
  const Calibration calibration = load_calibration(data.root, plan.cluster.device).value();
  const CostModel cost = CostModel::make(plan.cluster, calibration, {plan.job.precision, false}).value();
  const Program program = lower(plan, semantics);
  std::int64_t steps = 0;
  for (auto _ : state) {
    Result<Simulation> result = replay(program, cost, semantics);
    steps = result->steps;
    benchmark::DoNotOptimize(result);
  }
  state.counters["steps"] = static_cast<double>(steps);
  state.counters["steps/s"] =
      benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(replay_of_70b)->Arg(32)->Arg(64)->Unit(benchmark::kMillisecond);

} // namespace
} // namespace foretrain
