#include "executor/check.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/lower.h"
#include "core/spec/presets.h"

namespace foretrain {
namespace {

Plan runnable() {
  Plan plan;
  ModelSpec& m = plan.model;
  m.name = "tiny";
  m.layers = 4;
  m.hidden = 16;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 24;
  m.vocab = 50;
  TierSpec tier;
  tier.fanout = 8;
  plan.cluster.tiers = {tier};
  plan.job.sequence_length = 8;
  plan.job.global_batch = 4;
  plan.job.precision = Precision::fp32;
  plan.job.semantics = "foretrain";
  return plan;
}

MoeSpec experts() {
  MoeSpec moe;
  moe.experts = 8;
  moe.top_k = 2;
  moe.ffn = 16;
  return moe;
}

Semantics semantics(const std::string& name = "foretrain") {
  return DataFolder{std::string(FORETRAIN_SOURCE_DIR) + "/data"}.semantics(name).value();
}

TEST(CheckRunnable, AdmitsADensePlanAndItsProgram) {
  EXPECT_EQ(check_runnable(runnable(), semantics()), std::vector<std::string>{});
  EXPECT_EQ(check_runnable(lower(runnable(), semantics())), std::vector<std::string>{});
}

struct Refusal {
  const char* name;
  std::function<void(Plan&)> change;
  const char* reason; ///< must stand in one of the reasons
};

TEST(CheckRunnable, NamesWhatItCannotRun) {
  const std::vector<Refusal> refusals = {
      {"moe", [](Plan& p) { p.model.moe = experts(); }, "mixture-of-experts"},
      {"mla", [](Plan& p) { p.model.latent = LatentAttention{8, 8, 4, 4, 4, 0, 0}; }, "latent attention"},
      {"mtp", [](Plan& p) { p.model.mtp_layers = 1; }, "multi-token-prediction"},
      {"qk norm", [](Plan& p) { p.model.qk_norm = QkNorm::per_head; }, "norms of queries"},
      {"parallel block", [](Plan& p) { p.model.parallel_block = true; }, "in parallel"},
      {"cp", [](Plan& p) { p.layout.cp = 2; }, "context parallelism (cp 2)"},
      {"ep", [](Plan& p) { p.layout.ep = 2; }, "expert parallelism"},
      {"zero-2", [](Plan& p) { p.layout.sharding.kind = ShardingKind::gradients; }, "sharding 'gradients'"},
      {"zero-3", [](Plan& p) { p.layout.sharding.kind = ShardingKind::parameters; }, "sharding 'parameters'"},
      {"offload", [](Plan& p) { p.layout.offload.optimizer = true; }, "on the host"},
      {"fp8", [](Plan& p) { p.job.precision = Precision::fp8_current; }, "precision fp8"},
      {"bf16", [](Plan& p) { p.job.precision = Precision::bf16; }, "precision bf16"},
      {"muon", [](Plan& p) { p.job.optimizer.kind = OptimizerKind::muon; }, "optimizer muon"},
      {"dropout", [](Plan& p) { p.job.dropout = 0.1; }, "dropout"},
      {"unfused", [](Plan& p) { p.job.attention = AttentionKernel::unfused; }, "unfused"},
      {"loss", [](Plan& p) { p.job.cross_entropy = CrossEntropy::plain; }, "fused"},
      {"packed",
       [](Plan& p) {
         p.job.packed = {{4, 1.0}};
       },
       "packed"},
      {"positions", [](Plan& p) { p.model.learned_positions = 4; }, "4 learned positions"},
      {"heads", [](Plan& p) { p.layout.tp = 3; }, "tp 3 does not divide heads 4"},
      {"kv heads", [](Plan& p) { p.layout.tp = 4; }, "tp 4 does not divide kv_heads 2"},
      {"sequence",
       [](Plan& p) {
         p.job.sequence_length = 7;
         p.layout.tp = 2;
         p.layout.sequence_parallel = true;
       },
       "tp 2 does not divide tokens of a micro-batch 7"},
      {"batch", [](Plan& p) { p.layout.dp_shard = 3; }, "global_batch 4 is not a multiple of micro_batch × dp = 3"},
      {"layers", [](Plan& p) { p.layout.pp = 8; }, "a stage without layers"},
      {"stages",
       [](Plan& p) {
         p.layout.pp = 2;
         p.layout.layers_per_stage = {1, 2};
       },
       "does not add up to 4"},
      {"schedule", [](Plan& p) { p.layout.schedule.kind = "none such"; }, "schedule 'none such'"},
  };
  for (const Refusal& refusal : refusals) {
    Plan plan = runnable();
    refusal.change(plan);
    const std::vector<std::string> reasons = check_runnable(plan, semantics());
    EXPECT_TRUE(
        std::any_of(reasons.begin(), reasons.end(),
                    [&](const std::string& reason) { return reason.find(refusal.reason) != std::string::npos; }))
        << refusal.name << ": " << (reasons.empty() ? "admitted" : reasons.front());
  }
}

TEST(CheckRunnable, RefusesOtherSemantics) {
  const std::vector<std::string> reasons = check_runnable(runnable(), semantics("megatron-core"));
  ASSERT_FALSE(reasons.empty());
  EXPECT_NE(reasons.back().find("'megatron-core'"), std::string::npos) << reasons.back();
}

TEST(CheckRunnable, FindsOpsWithoutCodeInAProgram) {
  Plan plan = runnable();
  plan.model.moe = experts();
  plan.layout.ep = 2;
  plan.layout.dp_shard = 2;
  const std::vector<std::string> reasons = check_runnable(lower(plan, semantics()));
  EXPECT_NE(std::find(reasons.begin(), reasons.end(), "the interpreter has no code for op 'router'"), reasons.end());
  EXPECT_NE(std::find(reasons.begin(), reasons.end(), "the interpreter has no code for op 'all-to-all ep'"),
            reasons.end());
}

} // namespace
} // namespace foretrain
