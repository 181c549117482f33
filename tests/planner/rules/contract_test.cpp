#include <cmath>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>

#include "planner/rules/rule.h"
#include "tests/planner/rules/changes.h"
#include "tests/planner/rules/random_layout.h"

/// What every rejection owes its reader, whatever rule it comes from: two numbers that clash, both in the reason (or
/// one of something needed and none available), and changes that mend it.
namespace foretrain {
namespace {

using namespace cases;

/// Nothing in a layout or job makes up for a formula that is not known.
const std::set<std::string> kNoWayOut = {"model-not-modelled"};

struct Case {
  std::string what;
  Plan plan;
};

/// Models and jobs that, between them, give every rule something to reject.
std::vector<Case> settings() {
  std::vector<Case> list;
  for (const char* model : {"llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt2", "qwen3-next-80b-a3b", "qwen2.5-7b",
                            "gpt-neox-20b", "gemma2-9b", "olmo2-7b"})
    list.push_back({model, plan_of(model, "dgx-h100", 64, 4096, 256)});
  Plan adapters = plan_of("deepseek-v3", "dgx-h100", 64, 4096, 256);
  adapters.job.lora = LoraChoice{6, {AdapterTarget::qkv, AdapterTarget::ffn_up}};
  list.push_back({"adapters", adapters});
  adapters.model = data().model("llama3-8b").value();
  list.push_back({"dense adapters", adapters});
  Plan matrices = plan_of("llama3-8b", "dgx-h100", 64, 4096, 256);
  matrices.job.optimizer.kind = OptimizerKind::muon;
  list.push_back({"muon", matrices});
  Plan apart = plan_of("llama3-8b", "dgx-h100", 64, 4096, 256);
  apart.job.gradient_accumulation_fusion = true;
  list.push_back({"fused sums of gradients", apart});
  Plan unfused = plan_of("llama3-8b", "dgx-h100", 64, 4096, 256);
  unfused.job.attention = AttentionKernel::unfused;
  unfused.job.precision = Precision::nvfp4;
  list.push_back({"unfused", unfused});
  return list;
}

std::string in_words(double number) {
  return fmt::format("{:.0f}", number);
}

/// "28" in "28 heads over tp 8", but not in "128 heads".
bool mentions(const std::string& text, const std::string& number) {
  for (std::size_t at = text.find(number); at != std::string::npos; at = text.find(number, at + 1)) {
    const bool before = at > 0 && std::isdigit(static_cast<unsigned char>(text[at - 1]));
    const std::size_t end = at + number.size();
    const bool after = end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]));
    if (!before && !after) return true;
  }
  return false;
}

void expect_numbers(const Rejection& rejection) {
  EXPECT_TRUE(std::isfinite(rejection.needed) && std::isfinite(rejection.available)) << rejection.rule;
  EXPECT_NE(rejection.needed, rejection.available) << rejection.rule << ": " << rejection.reason;
  const bool lacks = rejection.needed == 1 && rejection.available == 0;
  EXPECT_TRUE(lacks || (mentions(rejection.reason, in_words(rejection.needed)) &&
                        mentions(rejection.reason, in_words(rejection.available))))
      << rejection.rule << ": " << rejection.reason << " (" << rejection.needed << " against " << rejection.available
      << ")";
}

/// Under the semantics that the plan names.
std::optional<Rejection> rejected(const Rule& rule, const Plan& plan) {
  static std::map<std::string, Semantics> known;
  const auto [at, added] = known.try_emplace(plan.job.semantics);
  if (added) at->second = data().semantics(plan.job.semantics).value();
  return rule.check({plan.model, plan.cluster, plan.job, at->second, plan.layout, 64});
}

/// The first of the rule's proposals, and of those that it makes next, lead to a plan that it accepts.
void expect_way_out(const Rule& rule, const Plan& start) {
  constexpr int kSteps = 8;
  Plan plan = start;
  std::string taken;
  for (int step = 0; step <= kSteps; ++step) {
    const auto rejection = rejected(rule, plan);
    if (!rejection) return;
    ASSERT_FALSE(rejection->nearest.empty()) << rule.id() << ": " << rejection->reason;
    ASSERT_LT(step, kSteps) << rule.id() << " after " << taken << ": " << rejection->reason;
    taken += " [" + rejection->nearest.front() + "]";
    ASSERT_TRUE(rules_changes::apply(rejection->nearest.front(), plan))
        << rule.id() << ": " << rejection->nearest.front();
  }
}

/// Every proposal changes the clash: the rule accepts the plan or has another objection.
void expect_all_mend(const Rule& rule, const Rejection& rejection, const Plan& start) {
  for (const std::string& change : rejection.nearest) {
    Plan plan = start;
    ASSERT_TRUE(rules_changes::apply(change, plan)) << rule.id() << ": " << change;
    const auto again = rejected(rule, plan);
    EXPECT_TRUE(!again || again->reason != rejection.reason)
        << rule.id() << ": " << change << " leaves " << rejection.reason;
  }
}

TEST(RuleContract, RejectionsCarryTwoNumbersAndAWayOut) {
  std::mt19937 random(23);
  std::set<std::string> seen;
  for (Case& setting : settings())
    for (const std::string& framework : data().semantics()) {
      const Semantics semantics = data().semantics(framework).value();
      Plan plan = setting.plan;
      plan.job.semantics = framework;
      for (int round = 0; round < 120; ++round) {
        plan.layout = random_layout(random);
        plan.job.sequence_length = round % 3 == 0 ? 100'000'000 : round % 3 == 1 ? 1 : 4096;
        plan.job.global_batch = round % 2 == 0 ? 1'000'000'000 : 256;
        const RuleInput input{plan.model, plan.cluster, plan.job, semantics, plan.layout, 64};
        for (const auto& rule : rules()) {
          const auto rejection = rule->check(input);
          if (!rejection) continue;
          seen.insert(rejection->rule);
          expect_numbers(*rejection);
          EXPECT_EQ(rejection->nearest.empty(), kNoWayOut.contains(rejection->rule))
              << rejection->rule << ": " << rejection->reason;
          if (rejection->nearest.empty()) continue;
          expect_all_mend(*rule, *rejection, plan);
          expect_way_out(*rule, plan);
          ASSERT_FALSE(testing::Test::HasFailure()) << setting.what << " under " << framework;
        }
      }
    }
  for (const auto& rule : rules())
    EXPECT_TRUE(seen.contains(std::string(rule->id()))) << rule->id() << " was never reached";
}

} // namespace
} // namespace foretrain
