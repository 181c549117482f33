#include "planner/cli/executed_plan.h"

#include "core/program/lower.h"
#include "planner/search.h"
#include "simulator/replay.h"

namespace foretrain::cli {
namespace {

constexpr const char* kExecutor = "foretrain";

Result<CostModel> cost_of(const LoadedPlan& loaded) {
  const CostNeeds needs{loaded.plan.job.precision, loaded.plan.layout.offload.optimizer};
  return CostModel::make(loaded.plan.cluster, loaded.calibration, needs);
}

Result<Prediction> predicted(const Context& context, const LoadedPlan& loaded) {
  return predict(loaded.plan, loaded.semantics, loaded.calibration, Engine::replay, "", context.data.root.string());
}

} // namespace

Result<ExecutedPlan> executed_plan(const Context& context, LoadedPlan loaded) {
  ExecutedPlan result;
  if (loaded.plan.job.semantics != kExecutor) {
    result.asked_semantics = loaded.plan.job.semantics;
    FORETRAIN_TRY(result.asked, predicted(context, loaded));
    loaded.plan.job.semantics = kExecutor;
    FORETRAIN_TRY(loaded.semantics, context.data.semantics(kExecutor));
  }
  FORETRAIN_TRY(result.prediction, predicted(context, loaded));
  result.loaded = std::move(loaded);
  if (result.prediction.verdict == Verdict::illegal) return result;
  FORETRAIN_TRY(const CostModel cost, cost_of(result.loaded));
  result.program = lower(result.loaded.plan, result.loaded.semantics);
  for (const Role& role : result.program->roles)
    result.ops.push_back(planned_ops(*result.program, role, cost, result.loaded.semantics));
  for (int rank = 0; rank < result.program->mesh.world(); ++rank)
    result.stage.push_back(result.program->mesh.coordinate(rank, Axis::pp));
  return result;
}

Result<Simulation> recorded_replay(const ExecutedPlan& plan) {
  FORETRAIN_TRY(const CostModel cost, cost_of(plan.loaded));
  return replay(*plan.program, cost, plan.loaded.semantics, {.record = true});
}

} // namespace foretrain::cli
