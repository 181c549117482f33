#include "tests/executor/device_cases.h"

#include <gtest/gtest.h>

namespace foretrain::executor_fixtures {
namespace {

Plan alone(const ModelSpec& model) {
  Plan plan = plan_of(model, Layout{});
  plan.layout.sharding.kind = ShardingKind::none;
  return plan;
}

} // namespace

void expect_models_equal(const Besides& besides) {
  for (const ModelSpec& model : {llama_like(), llama_like(true), gpt_like(), mixtral_like(), qwen3_like(), olmoe_like(),
                                 deepseek_like(), deepseek_mtp_like(), with_mtp(llama_like())}) {
    SCOPED_TRACE(model.name);
    expect_equal_to_one_process(alone(model), kSteps, {}, besides);
  }
}

void expect_optimizers_equal(const Besides& besides) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::sgd})
    for (const bool on_host : {false, true}) {
      Plan plan = alone(llama_like());
      plan.job.optimizer.kind = kind;
      plan.layout.offload.optimizer = on_host;
      expect_equal_to_one_process(plan, kSteps, {}, besides);
    }
  OptimizerOptions never;
  never.clip_norm = 0;
  OptimizerOptions always;
  always.clip_norm = 1e-3;
  for (const OptimizerOptions& options : {never, always}) {
    const RunOutcome here = run_threads(alone(llama_like()), 2, options, true, besides);
    const RunOutcome right = run_threads(alone(llama_like()), 2, options);
    for (const auto& [name, weight] : right.weights)
      EXPECT_LT(distance(here.weights.at(name), weight), Bounds{}.tensors) << name;
    EXPECT_NEAR(here.gradient_norms[1] / right.gradient_norms[1], 1, Bounds{}.tensors);
  }
}

std::vector<Row> rows_for(int most_ranks) {
  std::vector<Row> list;
  for (const Row& row : covering_array(2).rows)
    if (plan_of(row).layout.world() <= most_ranks) list.push_back(row);
  return list;
}

void expect_lower_precisions_equal(const Besides& besides) {
  Plan plan = alone(llama_like());
  plan.job.precision = Precision::fp32;
  expect_equal_to_one_process(plan, kSteps, {1e-5, 1e-5}, besides);
  plan.job.precision = Precision::bf16;
  expect_equal_to_one_process(plan, 1, {1e-2, 5e-2}, besides);
}

} // namespace foretrain::executor_fixtures
