#include "simulator/simgrid/simulate.h"

#include "core/program/lower.h"
#include "core/spec/presets.h"
#include "simulator/replay.h"
#include "simulator/simgrid/engine.h"

namespace foretrain {

Result<Simulation> simulate_program(const Program& program, const ClusterSpec& cluster, const Calibration& calibration,
                                    const CostNeeds& needs, const Semantics& semantics, bool record, bool fold) {
  // Caps of flows are what a transfer reaches alone; sharing and thinned uplinks are SimGrid's to find.
  FORETRAIN_TRY(const CostModel cost, CostModel::make(undisturbed(cluster), calibration, needs));
  const CostDurations durations(cost, program.mesh, semantics);
  const Script script = build_script(program, durations, {!record});
  const World world = all_ranks(program, script.groups_used, fold && tp_ranks_are_copies(program.mesh));
  const Topology topology(cluster, program.mesh, world, tier_rates(cost, script));
  return run_on_simgrid(script, world, topology, {record});
}

Result<Simulation> simulate_request(const SimulationRequest& request) {
  const DataFolder data{request.data};
  const Plan& plan = request.plan;
  FORETRAIN_TRY(const Semantics semantics, data.semantics(plan.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, load_calibration(data.root, plan.cluster.device));
  if (plan.layout.world() > device_count(plan.cluster))
    return fail("plan:/layout", "the layout needs " + std::to_string(plan.layout.world()) +
                                    " devices, the cluster has " + std::to_string(device_count(plan.cluster)));
  const Program program = lower(plan, semantics);
  return simulate_program(program, plan.cluster, calibration, {plan.job.precision, plan.layout.offload.optimizer},
                          semantics, request.record, request.fold);
}

} // namespace foretrain
