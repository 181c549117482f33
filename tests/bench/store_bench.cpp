#include <benchmark/benchmark.h>

#include "tests/db/samples.h"

namespace foretrain {
namespace {

/// What `plan` does at its end: 100,000 candidates of two stages, in batches of 10,000, with the disk.
void keep_100000_candidates(benchmark::State& state) {
  constexpr int kBatch = 10'000;
  std::vector<std::vector<NewCandidate>> batches;
  for (int i = 0; i < 10; ++i) batches.push_back(test::sample_batch(i * kBatch, kBatch));
  for (auto _ : state) {
    const test::TemporaryFolder folder;
    auto store = Store::open(folder / "a.db", OpenMode::write, test::data_folder());
    const auto study = store->begin_study(test::sample_study(), "bench");
    for (const auto& batch : batches)
      if (!store->add_candidates(*study, batch)) state.SkipWithError("a batch was refused");
  }
  state.SetItemsProcessed(state.iterations() * 10 * kBatch);
}
BENCHMARK(keep_100000_candidates)->Unit(benchmark::kMillisecond)->Iterations(3);

void rank_100000_candidates(benchmark::State& state) {
  const test::TemporaryFolder folder;
  auto store = Store::open(folder / "a.db", OpenMode::write, test::data_folder());
  const auto study = store->begin_study(test::sample_study(), "bench");
  if (!store->add_candidates(*study, test::sample_batch(0, 100'000))) state.SkipWithError("the batch was refused");
  for (auto _ : state) benchmark::DoNotOptimize(store->ranked(*study, Objective::step_time, 50));
}
BENCHMARK(rank_100000_candidates)->Unit(benchmark::kMillisecond);

} // namespace
} // namespace foretrain
