#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/program/program.h"
#include "planner/cli/inputs.h"
#include "planner/planned_ops.h"
#include "simulator/cost.h"
#include "simulator/simulation.h"

namespace foretrain::cli {

/// A plan under the executor's own semantics, with everything that is promised of its run.
struct ExecutedPlan {
  LoadedPlan loaded; ///< semantics: foretrain
  Prediction prediction;
  std::optional<Prediction> asked; ///< under the semantics that the plan names, when they are others
  std::string asked_semantics;
  std::optional<Program> program;          ///< absent when the plan is illegal
  std::vector<std::vector<PlannedOp>> ops; ///< by stage
  std::vector<int> stage;                  ///< by rank
};

/// Predicts by replay. Errors: those of `predict`. An illegal plan is no error: `prediction` says so.
[[nodiscard]] Result<ExecutedPlan> executed_plan(const Context& context, LoadedPlan loaded);

/// The replay of a legal plan, op by op with its timeline.
[[nodiscard]] Result<Simulation> recorded_replay(const ExecutedPlan& plan);

} // namespace foretrain::cli
