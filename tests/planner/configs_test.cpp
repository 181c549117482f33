#include <filesystem>
#include <map>

#include "core/spec/io.h"
#include "planner/search.h"
#include "tests/cases/cases.h"

namespace foretrain {
namespace {

using namespace cases;

/// What is counted, but has no formula for memory and time.
const std::map<std::string, std::string> kRefused = {
    {"glm-5", "a sparse-attention indexer"},         {"minimax-text-01", "lightning attention layers"},
    {"nemotron-3-nano-30b-a3b", "Mamba-2 blocks"},   {"nemotron-nano-9b-v2", "Mamba-2 blocks"},
    {"qwen3-next-80b-a3b", "gated DeltaNet layers"},
};

/// A Hugging Face configuration is a model wherever one is expected: each of these plans, or is refused with this
/// reason.
TEST(Configs, PlanOrAreRefusedByName) {
  int planned = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() / "tests/core/spec/configs")) {
    const std::string name = entry.path().stem().string();
    const auto model = load_model(data(), entry.path().string());
    ASSERT_TRUE(model) << name << ": " << to_string(model.error());
    const Plan plan = plan_of(*model, "dgx-h100", 512, 1024, 512);
    Study study{plan.model, plan.cluster, plan.job, {}, Objective::step_time, ""};
    study.space.tp = {1, 8};
    study.space.pp = {1, 8, 16};
    study.space.cp = {1};
    study.space.micro_batch = {1};
    study.space.recompute = {RecomputeKind::none, RecomputeKind::full};
    study.space.schedules = {"1f1b"};
    SearchOptions options;
    options.refine = false;
    options.near_misses = 1;
    const auto result =
        search(study, semantics_of(plan), load_calibration(data().root, plan.cluster.device).value(), options);
    ASSERT_TRUE(result) << name << ": " << to_string(result.error());
    const auto refused = kRefused.find(name);
    if (refused == kRefused.end()) {
      EXPECT_GT(result->fits, 0) << name;
      ++planned;
      continue;
    }
    EXPECT_EQ(result->legal, 0) << name;
    ASSERT_FALSE(result->near_misses.empty()) << name;
    const Rejection& rejection = result->near_misses.front().rejection;
    EXPECT_EQ(rejection.rule, "model-not-modelled") << name;
    EXPECT_NE(rejection.reason.find(refused->second), std::string::npos) << name << ": " << rejection.reason;
    EXPECT_GT(rejection.needed, rejection.available) << name;
  }
  EXPECT_EQ(planned, 73);
}

/// Layers that a framework does not have are refused under it, by rule.
TEST(Configs, FrameworksHaveTheirLayers) {
  const auto rule = [](const std::string& model, const std::string& framework) {
    Plan plan = plan_of(model, "dgx-h100", 8, 1024, 64, framework);
    plan.layout.dp_shard = 8;
    plan.layout.sharding.kind = semantics_of(plan).sharding.back();
    const Rejection rejection = rejection_of(plan, semantics_of(plan));
    return rejection.rule.empty() ? std::string("none") : rejection.rule;
  };
  for (const char* framework : {"megatron-core", "deepspeed", "composer"})
    for (const char* model : {"pythia-6.9b", "falcon-7b", "gemma2-2b", "olmo2-7b", "bloom-7b1"})
      EXPECT_EQ(rule(model, framework), "none") << framework << " " << model;
  for (const char* framework : {"foretrain", "torchtitan", "nanotron", "megatron-deepspeed"})
    for (const char* model : {"pythia-6.9b", "falcon-7b", "gemma2-2b", "olmo2-7b"})
      EXPECT_EQ(rule(model, framework), "block-features") << framework << " " << model;
  EXPECT_EQ(rule("pythia-6.9b", "gpt-neox"), "none");
  EXPECT_EQ(rule("gemma2-2b", "gpt-neox"), "block-features");
}

} // namespace
} // namespace foretrain
