#include "executor/check.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/lower.h"
#include "core/spec/presets.h"
#include "executor/table.h"
#include "tests/support/places.h"

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
  return DataFolder{test::source_folder() / "data"}.semantics(name).value();
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
      {"experts without sequence parallelism",
       [](Plan& p) {
         p.model.moe = experts();
         p.layout.tp = 2;
       },
       "experts with tp need sequence_parallel"},
      {"expert bias",
       [](Plan& p) {
         p.model.moe = experts();
         p.model.moe->expert_bias = true;
       },
       "biases inside experts"},
      {"latent attention with biases",
       [](Plan& p) {
         p.model.latent = LatentAttention{8, 8, 4, 4, 4, 0, 0};
         p.model.qkv_bias = true;
       },
       "latent attention"},
      {"mtp", [](Plan& p) { p.model.mtp_layers = 2; }, "more than one multi-token-prediction layer"},
      {"mtp with positions", [](Plan& p) { p.model.mtp_layers = 1, p.model.learned_positions = 64; }, "multi-token"},
      {"latent qk norm",
       [](Plan& p) {
         p.model.latent = LatentAttention{8, 8, 4, 4, 4, 0, 0};
         p.model.qk_norm = QkNorm::per_head;
       },
       "norms of queries and keys beside those that latent attention has"},
      {"wide LayerNorm",
       [](Plan& p) {
         p.model.norm = NormKind::layer;
         p.model.qk_norm = QkNorm::full_width;
         p.layout.tp = 2;
       },
       "LayerNorm of queries and keys over all heads"},
      {"parallel block", [](Plan& p) { p.model.parallel_block = true; }, "beside each other"},
      {"norms", [](Plan& p) { p.model.norm_placement = NormPlacement::after; }, "norms after the halves"},
      {"caps", [](Plan& p) { p.model.logit_softcap = 30; }, "capped"},
      {"scaled", [](Plan& p) { p.model.scaled_embedding = true; }, "scaled embedding"},
      {"ulysses inside ring",
       [](Plan& p) {
         p.layout.cp = 4;
         p.layout.context_parallel = {ContextKind::ulysses_ring, 2};
       },
       "Ulysses inside a ring"},
      {"zigzag",
       [](Plan& p) {
         p.layout.cp = 2;
         p.job.sequence_length = 6;
       },
       "2 × cp 4 does not divide sequence_length 6"},
      {"ep", [](Plan& p) { p.layout.ep = 2; }, "expert parallelism"},
      {"kept gathered",
       [](Plan& p) {
         p.layout.sharding.kind = ShardingKind::parameters;
         p.layout.sharding.reshard_after_forward = false;
       },
       "reshard_after_forward"},
      {"fp8", [](Plan& p) { p.job.precision = Precision::fp8_current; }, "precision fp8"},
      {"fp16", [](Plan& p) { p.job.precision = Precision::fp16; }, "precision fp16"},
      {"muon", [](Plan& p) { p.job.optimizer.kind = OptimizerKind::muon; }, "optimizer muon"},
      {"dropout", [](Plan& p) { p.job.dropout = 0.1; }, "dropout"},
      {"unfused", [](Plan& p) { p.job.attention = AttentionKernel::unfused; }, "unfused"},
      {"unfused norms", [](Plan& p) { p.job.norm = NormKernel::unfused; }, "norms in operators of their own"},
      {"loss", [](Plan& p) { p.job.cross_entropy = CrossEntropy::plain; }, "fused"},
      {"gradient fusion", [](Plan& p) { p.job.gradient_accumulation_fusion = false; }, "gradient_accumulation_fusion"},
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

/// The planner refuses by this list what the executor has no code for.
TEST(CheckRunnable, RunsTheBlockFeaturesOfItsSemanticsAndNoOthers) {
  const std::vector<std::pair<BlockFeature, std::function<void(Plan&)>>> features = {
      {BlockFeature::parallel, [](Plan& p) { p.model.parallel_block = true; }},
      {BlockFeature::norms_after, [](Plan& p) { p.model.norm_placement = NormPlacement::after; }},
      {BlockFeature::norms_around,
       [](Plan& p) { p.model.norm_placement = NormPlacement::around, p.model.norms_per_layer = 4; }},
      {BlockFeature::softcap, [](Plan& p) { p.model.attention_softcap = 30; }},
      {BlockFeature::qk_norms, [](Plan& p) { p.model.qk_norm = QkNorm::per_head, p.layout.tp = 2; }},
      {BlockFeature::wide_qk_norms, [](Plan& p) { p.model.qk_norm = QkNorm::full_width; }},
      {BlockFeature::split_wide_qk_norms, [](Plan& p) { p.model.qk_norm = QkNorm::full_width, p.layout.tp = 2; }},
  };
  const std::vector<BlockFeature> has = semantics().block_features;
  for (const auto& [feature, change] : features) {
    Plan plan = runnable();
    change(plan);
    EXPECT_EQ(check_runnable(plan, semantics()).empty(), std::find(has.begin(), has.end(), feature) != has.end())
        << "feature " << static_cast<int>(feature);
  }
}

TEST(CheckRunnable, RefusesOtherSemantics) {
  const std::vector<std::string> reasons = check_runnable(runnable(), semantics("megatron-core"));
  ASSERT_FALSE(reasons.empty());
  EXPECT_NE(reasons.back().find("'megatron-core'"), std::string::npos) << reasons.back();
}

TEST(CheckRunnable, FindsOpsWithoutCodeInAProgram) {
  Plan plan = runnable();
  plan.layout.dp_shard = 2;
  plan.layout.offload.optimizer = true;
  Program program = lower(plan, semantics());
  EXPECT_EQ(check_runnable(program), std::vector<std::string>{}); // copies at the step's end are the optimizer's
  const auto copy = std::find_if(program.roles.front().step.begin(), program.roles.front().step.end(),
                                 [](const Op& op) { return op.kind == OpKind::copy; });
  ASSERT_NE(copy, program.roles.front().step.end());
  program.blocks.front().forward.push_back(*copy); // as that of an activation
  EXPECT_EQ(check_runnable(program), std::vector<std::string>{"the interpreter has no code for op 'copy'"});
}

TEST(CheckRunnable, TheTableOfWhatRunsStandsInTheDocs) {
  std::ifstream file(test::source_folder() / "docs/executor.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  const std::string table = runnable_table(semantics());
  EXPECT_NE(docs.find(table), std::string::npos) << "docs/executor.md must have this table:\n" << table;
}

} // namespace
} // namespace foretrain
