#include "planner/short_runs.h"

#include "core/program/lower.h"
#include "core/program/schedules/schedule.h"
#include "simulator/replay.h"

namespace foretrain {

Plan shortened(Plan plan, std::int64_t micro_batches) {
  plan.job.global_batch = micro_batches * plan.layout.micro_batch * plan.layout.dp();
  return plan;
}

void continue_by(Simulation& b, const Simulation& a, double rounds) {
  b.step_time += (b.step_time - a.step_time) * rounds;
  for (std::size_t p = 0; p < b.time.size(); ++p) b.time[p] += (b.time[p] - a.time[p]) * rounds;
  for (std::size_t s = 0; s < b.stages.size(); ++s) {
    StageRun& stage = b.stages[s];
    const StageRun& before = a.stages[s];
    stage.compute += (stage.compute - before.compute) * rounds;
    for (std::size_t p = 0; p < stage.parts.size(); ++p) stage.parts[p] += (stage.parts[p] - before.parts[p]) * rounds;
  }
}

ShortRuns short_runs(const Plan& plan) {
  constexpr int kRounds = 3;
  // A short step of a schedule by cost may have another order than a long one.
  if (const Schedule* schedule = schedules().find(plan.layout.schedule.kind); schedule && schedule->by_cost())
    return {};
  const std::int64_t m = micro_batches_of(plan.job, plan.layout);
  const std::int64_t n = schedule_shape(plan.job, plan.layout).turn(); // a round of the interleaved schedule
  if (m <= 3 * kRounds * n) return {};
  const std::int64_t few = (kRounds - 1) * n + m % n;
  return {few, few + n, static_cast<double>((m - few - n) / n)};
}

Result<Simulation> replay_step(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics,
                               const Program& program) {
  const ShortRuns runs = short_runs(plan);
  if (runs.few == 0) return replay(program, evaluator.cost(), semantics);
  FORETRAIN_TRY(const Simulation a, replay(lower(shortened(plan, runs.few), semantics), evaluator.cost(), semantics));
  FORETRAIN_TRY(Simulation b, replay(lower(shortened(plan, runs.more), semantics), evaluator.cost(), semantics));
  continue_by(b, a, runs.rounds);
  return b;
}

} // namespace foretrain
