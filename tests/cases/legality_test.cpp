#include "planner/layouts.h"
#include "tests/cases/cases.h"

/// Reports of layouts that were refused, or accepted, wrongly.
namespace foretrain {
namespace {

using namespace cases;

using Ids = std::vector<std::string>;

// modelscope/ms-swift#8219, torchtitan PR#2577, PR#4016: two key-value heads on tp 8 are refused by Megatron-Core 0.15,
// replicated from 0.16 on; torchtitan allows tp 2 at most.
TEST(LegalityCases, KeyValueReplicationIsTheFrameworksMatter) {
  ModelSpec model = data().model("llama3-8b").value();
  model.name = "two-kv-heads"; // attention of Qwen3.5-397B-A17B
  model.kv_heads = 2;
  Plan plan = plan_of(model, "dgx-h100", 8, 4096, 8);
  plan.layout.tp = 8;
  plan.layout.sequence_parallel = true;
  EXPECT_EQ(rules_against(plan), Ids{});
  Semantics older = semantics_of(plan);
  older.version = "0.15";
  older.kv_replication = false;
  EXPECT_EQ(rules_against(plan, older), Ids{"kv-heads-tp"});
  plan.job.semantics = "torchtitan";
  plan.layout.sharding.kind = ShardingKind::parameters;
  EXPECT_EQ(rules_against(plan), Ids{"kv-heads-tp"});
  EXPECT_EQ(rejection_of(plan, semantics_of(plan)).nearest, (Ids{"tp 2", "tp 1"}));
  // With replication a rank keeps one head of the two.
  plan.job.semantics = "megatron-core";
  plan.layout.sharding.kind = ShardingKind::optimizer;
  const Program program = lowered(plan);
  for (const Block& block : program.blocks)
    for (const Parameter& parameter : block.parameters)
      if (parameter.name == "qkv") {
        EXPECT_EQ(parameter.local[0], (32 / 8 + 2) * 128);
      }
}

// THU-KEG/AdaptThink#1: 28 heads on tp 8; with four key-value heads and no replication 1, 2 and 4 are legal.
TEST(LegalityCases, SuggestsTensorDegreesThatDivideTheHeads) {
  Plan plan = plan_of("qwen2.5-7b", "dgx-h100", 8, 4096, 8, "torchtitan");
  plan.layout.tp = 8;
  plan.layout.sequence_parallel = true;
  const Rejection rejection = rejection_of(plan, semantics_of(plan));
  EXPECT_EQ(rejection.rule, "heads-tp");
  EXPECT_EQ(rejection.needed, 8);
  EXPECT_EQ(rejection.available, 28);
  EXPECT_EQ(rejection.nearest, (Ids{"tp 4", "tp 2", "tp 1"}));
}

Plan experts_on(int devices, int pp, int tp, int cp, int ep, int etp) {
  Plan plan = plan_of("qwen3-30b-a3b", "dgx-h100", std::max(8, devices), 4096, 64);
  if (devices < 8) plan.cluster.tiers.front().fanout = devices;
  plan.layout.pp = pp;
  plan.layout.tp = tp;
  plan.layout.cp = cp;
  plan.layout.ep = ep;
  plan.layout.etp = etp;
  plan.layout.sequence_parallel = tp > 1;
  plan.layout.dp_shard = devices / (pp * tp * cp);
  return plan;
}

// NVIDIA-NeMo/Megatron-Bridge#546: tp 4, ep 4, etp 1 runs on 4 devices; NVIDIA-NeMo/Speech#14838: tp 1, pp 2, ep 2, etp
// 1 does too, the products do not multiply to 8.
TEST(LegalityCases, ExpertsFoldOverDenseRanks) {
  EXPECT_EQ(rules_against(experts_on(4, 1, 4, 1, 4, 1)), Ids{});
  EXPECT_EQ(rules_against(experts_on(4, 2, 1, 1, 2, 1)), Ids{});
  EXPECT_EQ(rules_against(experts_on(4, 1, 4, 1, 4, 4)), Ids{"ep-folding"}); // etp taken for tp: 16 ranks
}

// NVIDIA-NeMo/Megatron-Bridge PR#3509: the fewest devices are pp · max(tp · cp, ep · etp).
TEST(LegalityCases, FewestDevices) {
  struct Row {
    int pp, tp, cp, ep, etp, fewest, mistaken;
  };
  for (const Row& row : {Row{1, 2, 1, 8, 1, 8, 16}, Row{1, 4, 1, 8, 1, 8, 32}, Row{1, 2, 2, 8, 1, 8, 32},
                         Row{1, 2, 4, 8, 1, 8, 64}, Row{2, 2, 1, 8, 1, 16, 32}, Row{1, 2, 1, 4, 2, 8, 16}}) {
    int fewest = 0;
    for (int devices = row.pp * row.tp * row.cp; fewest == 0 && devices <= 64; devices *= 2)
      if (is_legal(experts_on(devices, row.pp, row.tp, row.cp, row.ep, row.etp))) fewest = devices;
    EXPECT_EQ(fewest, row.fewest) << "pp " << row.pp << " tp " << row.tp << " cp " << row.cp << " ep " << row.ep;
    EXPECT_NE(fewest, row.mistaken);
  }
  // Where experts fold over cp · dp alone, the first row needs 16.
  Semantics unfolded = data().semantics("megatron-core").value();
  unfolded.ep_folds_over_tp = false;
  EXPECT_EQ(rules_against(experts_on(8, 1, 2, 1, 8, 1), unfolded), Ids{"ep-folding"});
  EXPECT_EQ(rules_against(experts_on(16, 1, 2, 1, 8, 1), unfolded), Ids{});
}

// NVIDIA/Megatron-LM PR#5768: the layout errors that people make most, each with an id of its own.
TEST(LegalityCases, MostFrequentMistakesHaveRules) {
  Plan base = plan_of("llama3-8b", "dgx-h100", 16, 4096, 64);
  base.layout.dp_shard = 16;
  ASSERT_EQ(rules_against(base), Ids{});
  const auto rule_of = [](const Plan& plan) {
    const Ids ids = rules_against(plan);
    return ids.empty() ? std::string("none") : ids.front();
  };
  Plan plan = base;
  plan.layout.dp_shard = 15; // world % (tp · pp · cp)
  EXPECT_EQ(rule_of(plan), "world-size");
  plan = base;
  plan.layout.schedule = {"interleaved", 2}; // interleaved without a pipeline
  EXPECT_EQ(rule_of(plan), "schedule-supported");
  plan = base;
  plan.layout.sequence_parallel = true; // without tp
  EXPECT_EQ(rule_of(plan), "sequence-parallel");
  plan = base;
  plan.model.heads = plan.model.kv_heads = 20;
  plan.layout.tp = 16;
  plan.layout.dp_shard = 1;
  plan.layout.sequence_parallel = true;
  EXPECT_EQ(rule_of(plan), "heads-tp");
  plan = base;
  plan.layout.ep = 2; // no experts
  EXPECT_EQ(rule_of(plan), "ep-without-experts");
  plan = experts_on(16, 1, 2, 1, 8, 4); // world % (etp · ep · pp)
  EXPECT_EQ(rule_of(plan), "ep-folding");
  plan = base;
  plan.layout.pp = 16;
  plan.layout.dp_shard = 1;
  plan.layout.schedule = {"interleaved", 3}; // layers % (pp · chunks)
  EXPECT_EQ(rule_of(plan), "layers-pp");
  plan = base;
  plan.job.global_batch = 40; // batch % (dp · micro-batch)
  EXPECT_EQ(rule_of(plan), "global-batch");
}

// GPT-2's table has 1,024 rows (huggingface openai-community/gpt2 config.json, n_positions): Megatron-LM asserts
// seq_length <= max_position_embeddings (megatron/training/arguments.py).
TEST(LegalityCases, LearnedPositionsBoundTheSequence) {
  Plan plan = plan_of("gpt2", "dgx-h100", 8, 1024, 64);
  plan.layout.dp_shard = 8;
  EXPECT_TRUE(is_legal(plan));
  plan.job.sequence_length = 1025;
  const Rejection rejection = rejection_of(plan, semantics_of(plan));
  EXPECT_EQ(rejection.rule, "learned-positions");
  EXPECT_EQ(rejection.needed, 1025);
  EXPECT_EQ(rejection.available, 1024);
}

} // namespace
} // namespace foretrain
