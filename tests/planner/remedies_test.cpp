#include "planner/remedies.h"

#include "planner/search.h"
#include "tests/planner/rules/changes.h"
#include "tests/planner/samples.h"

namespace foretrain {
namespace {

using namespace samples;

/// A change of a remedy ("tp 4, dp 2"), where a degree of tensor parallelism splits the sequence too.
void change(const std::string& text, Plan& plan) {
  const bool single = plan.layout.tp == 1;
  ASSERT_TRUE(rules_changes::apply(text, plan)) << text;
  if (single && plan.layout.tp > 1) plan.layout.sequence_parallel = true;
}

// What a rejection for want of memory proposes is legal and fits.
TEST(Remedies, FitWhenTheyAreApplied) {
  int proposed = 0;
  for (const auto& [model, framework] : {std::pair{"llama3-70b", "megatron-core"},
                                         {"llama3-8b", "torchtitan"},
                                         {"mixtral-8x7b", "megatron-core"},
                                         {"llama2-13b", "deepspeed"}}) {
    Setting s = setting_of(model, "dgx-h100", 64, 8192, 1024, framework);
    s.plan.layout.tp = framework == std::string("megatron-core") ? 8 : 1;
    s.plan.layout.sequence_parallel = s.plan.layout.tp > 1;
    s.plan.layout.dp_shard = 64 / s.plan.layout.tp;
    s.plan.layout.micro_batch = 8;
    s.plan.layout.sharding.kind = s.semantics.sharding.front();
    const auto prediction = cases::predicted(s.plan);
    ASSERT_TRUE(prediction) << to_string(prediction.error());
    ASSERT_EQ(prediction->verdict, Verdict::oom) << model;
    ASSERT_FALSE(prediction->rejections.front().nearest.empty()) << model;
    for (const std::string& text : prediction->rejections.front().nearest) {
      if (text.find("devices") != std::string::npos) continue; // more than there are
      Plan changed = s.plan;
      change(text, changed);
      const auto again = cases::predicted(changed);
      ASSERT_TRUE(again) << to_string(again.error());
      EXPECT_EQ(again->verdict, Verdict::fits) << model << " under " << framework << ": " << text;
      ++proposed;
    }
  }
  EXPECT_GE(proposed, 4);
}

// 405 B parameters on eight devices: nothing fits, all is left out before it is evaluated, and the answer says what
// would.
TEST(Remedies, NameTheDevicesThatWouldDo) {
  const Setting s = setting_of("llama3-405b", "dgx-h100", 8, 8192, 64, "megatron-core");
  const Study study{s.plan.model, s.plan.cluster, s.plan.job, {}, Objective::step_time, ""};
  SearchOptions options;
  options.refine = false;
  const auto result = search(study, s.semantics, s.calibration, options);
  ASSERT_TRUE(result) << to_string(result.error());
  EXPECT_EQ(result->fits, 0);
  EXPECT_EQ(result->evaluated, 0);
  EXPECT_GT(result->pruned.at(std::string(kModelState)), 0);
  ASSERT_FALSE(result->near_misses.empty());
  const Rejection& nearest = result->near_misses.front().rejection;
  EXPECT_EQ(nearest.rule, kModelState);
  EXPECT_GT(nearest.needed, nearest.available);
  EXPECT_NE(nearest.reason.find("model state alone"), std::string::npos);
  ASSERT_EQ(nearest.nearest.size(), 1u);
  const std::string& text = nearest.nearest.front(); // "128 devices: pp 16, micro_batch 1, …"
  const int devices = std::stoi(text);
  Plan plan = cases::plan_of("llama3-405b", "dgx-h100", devices, 8192, 64);
  plan.layout = result->near_misses.front().layout;
  change(text.substr(text.find(':') + 2), plan);
  ASSERT_EQ(plan.layout.world(), devices);
  const auto prediction = cases::predicted(plan);
  ASSERT_TRUE(prediction) << to_string(prediction.error());
  EXPECT_EQ(prediction->verdict, Verdict::fits) << text;
}

// Without stages there is nothing to order: what runs there has one name, under every framework.
TEST(Remedies, SchedulesNeedStages) {
  for (const std::string& framework : cases::data().semantics())
    for (const std::string_view kind : kScheduleKinds) {
      Setting s = setting_of("llama3-8b", "dgx-h100", 8, 4096, 64, framework);
      s.plan.layout.dp_shard = 8;
      s.plan.layout.sharding.kind = s.semantics.sharding.front();
      s.plan.layout.schedule = {std::string(kind), kind == "interleaved" ? 2 : 1};
      const Rejection rejection = cases::rejection_of(s.plan, s.semantics);
      if (kind == "1f1b") {
        EXPECT_EQ(rejection, Rejection{}) << framework;
        continue;
      }
      EXPECT_EQ(rejection.rule, "schedule-supported") << framework << " " << kind;
      EXPECT_EQ(rejection.nearest.front(), "schedule 1f1b, chunks 1");
    }
}

} // namespace
} // namespace foretrain
