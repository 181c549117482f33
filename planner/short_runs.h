#pragma once

#include <cstdint>

#include "core/program/program.h"
#include "core/spec/plan.h"
#include "core/spec/semantics.h"
#include "planner/evaluate.h"
#include "simulator/simulation.h"

namespace foretrain {

/// A full pipeline repeats itself with every `pp` micro-batches, or every group of them (see Evaluator): two short runs
/// one round apart stand for a long one.
struct ShortRuns {
  std::int64_t few = 0;  ///< micro-batches of the shorter run; 0: the step is short enough to run whole
  std::int64_t more = 0; ///< of the longer one
  double rounds = 0;     ///< that the longer one goes on for
};
[[nodiscard]] ShortRuns short_runs(const Plan& plan);

/// `plan` with as many micro-batches.
[[nodiscard]] Plan shortened(Plan plan, std::int64_t micro_batches);

/// `b` went on from `a` for `rounds` more of what lies between them.
void continue_by(Simulation& b, const Simulation& a, double rounds);

/// Op replay of a step.
[[nodiscard]] Result<Simulation> replay_step(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics,
                                             const Program& program);

} // namespace foretrain
