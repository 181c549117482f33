#include <benchmark/benchmark.h>

#include "core/spec/presets.h"
#include "simulator/cost.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

CostModel model(const char* name) {
  const DataFolder data{test::source_folder() / "data"};
  const ClusterSpec cluster = *data.cluster(name);
  return *CostModel::make(cluster, *load_calibration(data.root, cluster.device));
}

void gemm(benchmark::State& state) {
  const CostModel costs = model("dgx-h100");
  Kernel kernel;
  kernel.kind = KernelKind::gemm;
  kernel.m = 8192;
  kernel.n = 7168;
  kernel.k = 8192;
  kernel.flop = 2.0 * 8192 * 7168 * 8192;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernel);
    benchmark::DoNotOptimize(costs.kernel(kernel));
  }
}
BENCHMARK(gemm);

void attention(benchmark::State& state) {
  const CostModel costs = model("dgx-h100");
  Kernel kernel;
  kernel.kind = KernelKind::attention_backward;
  kernel.m = kernel.n = 8192;
  kernel.k = kernel.v_dim = 128;
  kernel.heads = 8;
  kernel.flop = 2.5 * 2 * 8192.0 * 8192 * 8 * 128;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernel);
    benchmark::DoNotOptimize(costs.kernel(kernel));
  }
}
BENCHMARK(attention);

void collective(benchmark::State& state, Collective kind, int per_node, int nodes) {
  const CostModel costs = model("dgx-h100");
  GroupShape shape;
  shape.size = per_node * nodes;
  shape.per_tier = {per_node, nodes, 1, 1, 1, 1};
  Bytes bytes(16 * kMiB);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bytes);
    benchmark::DoNotOptimize(costs.collective(kind, shape, DType::bf16, bytes));
  }
}
BENCHMARK_CAPTURE(collective, table_in_node, Collective::all_reduce, 8, 1);
BENCHMARK_CAPTURE(collective, table_over_nodes, Collective::all_reduce, 8, 4);
BENCHMARK_CAPTURE(collective, beyond_table, Collective::all_gather, 8, 16);
BENCHMARK_CAPTURE(collective, formula, Collective::all_gather, 1, 16);
BENCHMARK_CAPTURE(collective, all_to_all, Collective::all_to_all, 8, 8);
BENCHMARK_CAPTURE(collective, ring_exchange, Collective::ring_exchange, 4, 1);

} // namespace
} // namespace foretrain
