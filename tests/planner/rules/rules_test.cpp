#include "planner/rules/rule.h"

#include <random>
#include <set>

#include "tests/planner/rules/random_layout.h"

namespace foretrain {
namespace {

using namespace cases;

/// What every entry of the catalogue owes: a new rule is tested before its author writes a test.
TEST(Rules, HaveUniqueIdsAndSayWhatMustHold) {
  std::set<std::string_view> ids;
  for (const auto& rule : rules()) {
    EXPECT_TRUE(ids.insert(rule->id()).second) << rule->id();
    EXPECT_EQ(rule->id().find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string_view::npos)
        << rule->id();
    EXPECT_GT(rule->summary().size(), 10u) << rule->id();
    EXPECT_EQ(rule->summary().back(), '.') << rule->id();
  }
  EXPECT_GE(ids.size(), 20u);
}

TEST(Rules, AnswerWhateverTheReadersAdmit) {
  std::mt19937 random(7);
  std::set<std::string> seen;
  int legal = 0;
  for (const char* name : {"llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt2", "qwen3-next-80b-a3b"}) {
    Plan plan = plan_of(name, "dgx-h100", 64, 4096, 256);
    for (const std::string& framework : data().semantics()) {
      const Semantics semantics = data().semantics(framework).value();
      for (int round = 0; round < 300; ++round) {
        plan.layout = random_layout(random);
        plan.job.sequence_length = round % 3 == 0 ? 100'000'000 : round % 3 == 1 ? 1 : 4096;
        plan.job.global_batch = round % 2 == 0 ? 1'000'000'000 : 256;
        const RuleInput input{plan.model, plan.cluster, plan.job, semantics, plan.layout, 64};
        const std::vector<Rejection> all = all_rejections(input);
        const std::optional<Rejection> first = first_rejection(input);
        ASSERT_EQ(first.has_value(), !all.empty());
        if (first) {
          EXPECT_EQ(*first, all.front());
        }
        for (const Rejection& rejection : all) {
          seen.insert(rejection.rule);
          EXPECT_FALSE(rejection.reason.empty()) << rejection.rule;
          EXPECT_TRUE(rules().find(rejection.rule)) << rejection.rule;
        }
        legal += all.empty() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(seen.size(), rules().ids().size() * 2 / 3); // the inputs reach most rules
  SUCCEED() << legal;
}

/// `whole` with the dimensions after `settled` at their defaults.
Layout up_to(Dimension settled, const Layout& whole) {
  const Layout defaults;
  Layout part = whole;
  if (settled < Dimension::schedule) part.schedule = defaults.schedule;
  if (settled < Dimension::sharding) part.sharding = defaults.sharding;
  if (settled < Dimension::offload) part.offload = defaults.offload;
  if (settled < Dimension::micro_batch) part.micro_batch = defaults.micro_batch;
  if (settled < Dimension::sequence_parallel) {
    part.sequence_parallel = defaults.sequence_parallel;
    part.overlap.tp = defaults.overlap.tp;
  }
  if (settled < Dimension::context) part.context_parallel = defaults.context_parallel;
  if (settled < Dimension::dispatch) part.expert_dispatch = defaults.expert_dispatch;
  if (settled < Dimension::recompute) part.recompute = defaults.recompute;
  return part;
}

/// A rule looks at the dimensions up to its scope: the rest of the layout must not change its answer. What degrees
/// alone decide is decided for the whole layout.
TEST(Rules, LookNoFurtherThanTheirScope) {
  std::mt19937 random(11);
  std::set<std::string_view> early;
  for (const char* framework : {"megatron-core", "torchtitan", "deepspeed"}) {
    const Plan plan = plan_of("mixtral-8x7b", "dgx-h100", 64, 4096, 256, framework);
    const Semantics semantics = semantics_of(plan);
    for (int round = 0; round < 500; ++round) {
      const Layout whole = random_layout(random);
      const RuleInput input{plan.model, plan.cluster, plan.job, semantics, whole, 64};
      for (const auto& rule : rules()) {
        const Layout part = up_to(rule->scope(), whole);
        const RuleInput other{plan.model, plan.cluster, plan.job, semantics, part, 64};
        EXPECT_EQ(rule->check(input).has_value(), rule->check(other).has_value()) << rule->id();
        const Layout degrees = up_to(Dimension::degrees, whole);
        const RuleInput outer{plan.model, plan.cluster, plan.job, semantics, degrees, 64};
        const bool decided = rule->check_degrees(outer).has_value();
        EXPECT_EQ(decided, rule->check_degrees(input).has_value()) << rule->id();
        if (!decided) continue;
        EXPECT_TRUE(rule->check(input)) << rule->id();
        if (rule->scope() != Dimension::degrees) early.insert(rule->id());
      }
    }
  }
  EXPECT_GE(early.size(), 4u);
}

/// NVIDIA/Megatron-LM training/arguments.py: --tp-comm-overlap needs sequence parallelism; Composer has no tensor
/// parallelism to pipeline.
TEST(Rules, AdmitPipelinedTensorCollectivesWhereTheFrameworkHasThem) {
  const auto rule_of = [](const char* framework, bool sequence_parallel) {
    Plan plan = plan_of("llama3-8b", "dgx-h100", 8, 4096, 64, framework);
    plan.layout.tp = 8;
    plan.layout.dp_shard = 1;
    plan.layout.sequence_parallel = sequence_parallel;
    plan.layout.overlap.tp = true;
    const Semantics semantics = semantics_of(plan);
    const RuleInput input{plan.model, plan.cluster, plan.job, semantics, plan.layout, 8};
    for (const auto& rule : rules())
      if (rule->id() == "tensor-overlap") return rule->check(input);
    return std::optional<Rejection>();
  };
  EXPECT_FALSE(rule_of("megatron-core", true));
  EXPECT_TRUE(rule_of("megatron-core", false));
  EXPECT_TRUE(rule_of("megatron-deepspeed", true));
}

/// What the tensor rules propose is legal for heads.
TEST(Rules, ProposeWhatIsLegal) {
  Plan plan = plan_of("qwen2.5-7b", "dgx-h100", 8, 4096, 64);
  for (int tp = 2; tp <= 28; ++tp) {
    plan.layout.tp = tp;
    plan.cluster.tiers.front().fanout = tp;
    plan.layout.sequence_parallel = false;
    const Semantics semantics = semantics_of(plan);
    const Rejection rejection = rejection_of(plan, semantics);
    if (rejection.rule != "heads-tp" && rejection.rule != "kv-heads-tp") continue;
    ASSERT_FALSE(rejection.nearest.empty()) << tp;
    for (const std::string& change : rejection.nearest) {
      Plan changed = plan;
      changed.layout.tp = std::stoi(change.substr(3));
      changed.cluster.tiers.front().fanout = changed.layout.tp;
      const std::string rule = rejection_of(changed, semantics).rule;
      EXPECT_TRUE(rule != "heads-tp" && rule != "kv-heads-tp") << change;
    }
  }
}

} // namespace
} // namespace foretrain
