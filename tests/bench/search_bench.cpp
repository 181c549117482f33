// Layouts that the search evaluates per second and core: Llama-3-70B on 64 H100s, the study of scripts/demo, without
// the refinement of the best. Run on an idle machine; scripts/bench prints its figures.
#include <benchmark/benchmark.h>

#include "core/spec/calibration.h"
#include "core/spec/presets.h"
#include "planner/search.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

void search_of_70b(benchmark::State& state) {
  const DataFolder data{test::source_folder() / "data"};
  Study study;
  study.model = data.model("llama3-70b").value();
  study.cluster = load_cluster(data, "dgx-h100", 64).value();
  study.job.sequence_length = 8192;
  study.job.global_batch = 256;
  const Semantics semantics = data.semantics(study.job.semantics).value();
  const Calibration calibration = load_calibration(data.root, study.cluster.device).value();
  SearchOptions options;
  options.jobs = static_cast<int>(state.range(0));
  options.refine = false;
  SearchResult result;
  for (auto _ : state) result = search(study, semantics, calibration, options).value();
  const auto rate = [](std::int64_t layouts) {
    return benchmark::Counter(static_cast<double>(layouts), benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["evaluated"] = static_cast<double>(result.evaluated);
  state.counters["evaluated/s"] = rate(result.evaluated);
  state.counters["judged/s"] = rate(result.enumerated);
}

BENCHMARK(search_of_70b)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

} // namespace
} // namespace foretrain
