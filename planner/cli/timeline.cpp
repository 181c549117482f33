#include "planner/cli/timeline.h"

#include "core/program/lower.h"
#include "simulator/pool.h"
#include "simulator/replay.h"
#include "simulator/trace.h"

namespace foretrain::cli {
namespace {

Result<Simulation> recorded(const Context& context, const LoadedPlan& loaded, Engine engine) {
  const Plan& plan = loaded.plan;
  if (engine == Engine::simgrid) {
    SimulationRequest request;
    request.plan = plan;
    request.data = context.data.root.string();
    request.record = true;
    PoolOptions options;
    options.worker = context.worker;
    WorkerPool pool(options);
    return pool.run({request}, context.stop).front();
  }
  const CostNeeds needs{plan.job.precision, plan.layout.offload.optimizer};
  FORETRAIN_TRY(const CostModel cost, CostModel::make(plan.cluster, loaded.calibration, needs));
  const Program program = lower(plan, loaded.semantics);
  return replay(program, cost, loaded.semantics, {.record = true});
}

} // namespace

Result<void> write_trace(const Context& context, const LoadedPlan& loaded, Engine engine, const std::string& file) {
  FORETRAIN_TRY(const Simulation simulation, recorded(context, loaded, engine));
  return write_text_file(file, chrome_trace(simulation));
}

} // namespace foretrain::cli
