#include "tests/cases/cases.h"

/// Published runs that worked: a forecast that turns one of them down would send its user away from a good layout.
namespace foretrain {
namespace {

using namespace cases;

/// H100 of torchtitan's published runs (benchmarks/llama3_h100_202412_torchtitan.md): 96 GB, HBM2e. Peaks as of the 80
/// GB device; the driver's total is not published, so the marketed size counts.
Plan torchtitan(const std::string& model, int devices, std::int64_t global_batch, int sequence = 8192) {
  Plan plan = plan_of(model, "dgx-h100", devices, sequence, global_batch, "torchtitan");
  plan.cluster.device.name = "h100-96gb";
  plan.cluster.device.memory = Bytes(96 * kGiB);
  plan.cluster.device.usable_memory.reset();
  plan.layout.sharding.kind = ShardingKind::parameters;
  return plan;
}

/// The plan fits, and its forecast stays below `measured_gib` where what ran held more than what is modelled.
void expect_fits(const Plan& plan, const std::string& what, double measured_gib) {
  ASSERT_TRUE(is_legal(plan)) << what << ": " << rules_against(plan).front();
  const auto prediction = predicted(plan);
  ASSERT_TRUE(prediction) << what << ": " << to_string(prediction.error());
  EXPECT_EQ(prediction->verdict, Verdict::fits)
      << what << ": " << (prediction->rejections.empty() ? "" : prediction->rejections.front().reason);
  if (measured_gib <= 0) return;
  for (const StageMemory& stage : prediction->memory) EXPECT_LT(gib(stage.reserved), measured_gib) << what;
}

// torchtitan: Llama 3.1 8B, two sequences of 8,192 a device: 82.4 GiB on 8 devices and 67.0 on 128, reserved, with
// every second product kept. That recomputation is not modelled; whole layers, which keep less, are.
TEST(FitsCases, Llama8bOnEightAndOn128) {
  for (const auto& [devices, measured] : {std::pair{8, 82.4}, std::pair{128, 67.0}}) {
    Plan plan = torchtitan("llama3-8b", devices, 2 * devices);
    plan.layout.dp_shard = devices;
    plan.layout.micro_batch = 2;
    plan.layout.recompute.kind = RecomputeKind::full;
    expect_fits(plan, "8B on " + std::to_string(devices), measured);
  }
}

// torchtitan: 70B, 256 devices, FSDP 32 × TP 8, batch 16 a replica, full checkpointing: 71.9 GiB (8-bit products).
TEST(FitsCases, Llama70bOn256) {
  Plan plan = torchtitan("llama3-70b", 256, 512);
  plan.layout.dp_shard = 32;
  plan.layout.tp = 8;
  plan.layout.sequence_parallel = true;
  plan.layout.micro_batch = 16;
  plan.layout.recompute.kind = RecomputeKind::full;
  expect_fits(plan, "70B", 71.9);
}

// torchtitan: 405B, 512 devices, FSDP 8 × TP 8 × PP 8, batch 32 a replica: 82.5 GiB with 1F1B, 72.7 interleaved
// (8-bit).
TEST(FitsCases, Llama405bOn512) {
  Plan plan = torchtitan("llama3-405b", 512, 256);
  plan.layout.dp_shard = 8;
  plan.layout.tp = 8;
  plan.layout.pp = 8;
  plan.layout.sequence_parallel = true;
  plan.layout.recompute.kind = RecomputeKind::full;
  expect_fits(plan, "405B, 1F1B", 82.5);
  plan.layout.schedule = {"interleaved", 2};
  expect_fits(plan, "405B, interleaved", 72.7);
}

// torchtitan: 405B with context parallelism 1, 2, 4, 8 from 32K to 262K tokens: 75.3, 75.9, 77.1, 84.9 GiB. The batch
// is not stated: one sequence a stage.
TEST(FitsCases, LongContexts) {
  int cp = 1;
  for (const double measured : {75.3, 75.9, 77.1, 84.9}) {
    Plan plan = torchtitan("llama3-405b", 512, 64 / cp, 32'768 * cp);
    plan.layout.tp = 8;
    plan.layout.pp = 8;
    plan.layout.sequence_parallel = true;
    plan.layout.cp = cp;
    plan.layout.dp_shard = 8 / cp;
    plan.layout.recompute.kind = RecomputeKind::full;
    plan.layout.context_parallel.kind = ContextKind::all_gather;
    expect_fits(plan, "405B, cp " + std::to_string(cp), measured);
    cp *= 2;
  }
}

// MooreThreads/SimuMax docs/b200/b200_release_v1.2_summary.json@4dcaae5: ran on eight B200. Their allocated peaks are
// tested to a tenth of a percent in tests/core/program/memory_test.cpp.
TEST(FitsCases, SimuMaxRunsOnB200) {
  struct Row {
    bool big;
    int tp, pp, dp, cp, sequence;
  };
  for (const Row& row : {Row{false, 2, 1, 4, 1, 4096}, Row{false, 8, 1, 1, 1, 4096}, Row{false, 1, 2, 4, 1, 4096},
                         Row{true, 2, 1, 4, 1, 4096}, Row{true, 1, 2, 4, 1, 4096}, Row{false, 2, 1, 1, 4, 32768},
                         Row{false, 1, 1, 1, 8, 131072}, Row{true, 2, 1, 1, 4, 131072}}) {
    Plan plan = plan_of(row.big ? "llama3-405b" : "llama3-70b", "dgx-b200", 8, row.sequence, 4 * row.dp);
    plan.model.layers = row.big ? 4 : 12;
    plan.job.cross_entropy = CrossEntropy::fused;
    plan.layout.tp = row.tp;
    plan.layout.pp = row.pp;
    plan.layout.cp = row.cp;
    plan.layout.dp_shard = row.dp;
    plan.layout.sequence_parallel = row.tp > 1;
    plan.layout.context_parallel.kind = ContextKind::ulysses;
    expect_fits(plan, plan.model.name + " tp " + std::to_string(row.tp) + " cp " + std::to_string(row.cp), 0);
  }
}

// Megatron Bridge, GPT-OSS-120B in bf16 on 64 H100, pp 4, ep 8: 5,824 tokens/s/GPU.
TEST(FitsCases, GptOss120bOn64) {
  Plan plan = plan_of("gpt-oss-120b", "dgx-h100", 64, 4096, 512);
  plan.layout.pp = 4;
  plan.layout.ep = 8;
  plan.layout.dp_shard = 16;
  expect_fits(plan, "GPT-OSS-120B", 0);
}

/// Layers of interleaved chunks where the ends hold fewer: the recipes count embedding and loss as layers.
std::vector<int> with_short_ends(int chunks, int each) {
  std::vector<int> layers(static_cast<std::size_t>(chunks), each);
  --layers.front();
  --layers.back();
  return layers;
}

// Megatron Bridge, performance summary, H100, per-tensor current scaling: 70B on 64 (1,664 tokens/s/GPU), 405B on 1,024
// (326), Qwen3-235B on 256 (1,712), Qwen3-30B on 16 (8,826). The recipes gather weights in 8 bits
// (src/megatron/bridge/training/mixed_precision.py@067f987df, fp8_param_gather) and fuse the loss
// (scripts/performance/utils/overrides.py).
TEST(FitsCases, MegatronBridgeRecipesIn8Bits) {
  struct Row {
    const char* model;
    int devices, sequence, batch, tp, pp, cp, ep, chunks, layers;
    double tokens;
  };
  for (const Row& row : {Row{"llama3-70b", 64, 8192, 256, 4, 8, 1, 1, 5, 0, 1664},
                         Row{"llama3-405b", 1024, 8192, 1536, 8, 8, 2, 1, 8, 2, 326},
                         Row{"qwen3-235b-a22b", 256, 4096, 2048, 2, 8, 1, 32, 4, 3, 1712},
                         Row{"qwen3-30b-a3b", 16, 4096, 512, 1, 1, 1, 16, 1, 0, 8826}}) {
    Plan plan = plan_of(row.model, "dgx-h100", row.devices, row.sequence, row.batch, "nemo");
    plan.job.precision = Precision::fp8_current;
    plan.job.quantised_weights = true;
    plan.job.cross_entropy = CrossEntropy::fused;
    plan.layout.tp = row.tp;
    plan.layout.pp = row.pp;
    plan.layout.cp = row.cp;
    plan.layout.ep = row.ep;
    plan.layout.dp_shard = row.devices / (row.tp * row.pp * row.cp);
    plan.layout.sequence_parallel = row.tp > 1;
    if (row.chunks > 1) plan.layout.schedule = {"interleaved", row.chunks};
    if (row.layers > 0) plan.layout.layers_per_stage = with_short_ends(row.pp * row.chunks, row.layers);
    expect_fits(plan, row.model, 0);
    const auto prediction = predicted(plan);
    constexpr double kFar = 0.3; // held out: far enough for another machine, too near for another mistake
    EXPECT_NEAR(prediction->tokens_per_s_per_device / row.tokens, 1, kFar) << row.model;
  }
}

} // namespace
} // namespace foretrain
