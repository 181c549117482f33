#include "simulator/simgrid/simulate.h"

#include "core/program/lower.h"
#include "core/spec/framework_kernels.h"
#include "core/spec/presets.h"
#include "simulator/replay.h"
#include "simulator/simgrid/engine.h"

namespace foretrain {

Result<Simulation> simulate_program(const Program& program, const ClusterSpec& cluster, const Calibration& calibration,
                                    const CostNeeds& needs, const Semantics& semantics, bool record, bool fold) {
  // Caps of flows are what a transfer reaches alone; sharing and thinned uplinks are SimGrid's to find.
  FORETRAIN_TRY(const CostModel cost, CostModel::make(undisturbed(cluster), calibration, needs));
  const CostDurations durations(cost, program, semantics);
  const Script script = build_script(program, durations, {!record});
  const World world = all_ranks(program, script.groups_used, fold && tp_ranks_are_copies(program.mesh));
  const Topology topology(cluster, program.mesh, world, tier_rates(cost, script));
  return run_on_simgrid(script, world, topology, {record, cost.ranks_per_processor()});
}

Result<Simulation> simulate_request(const SimulationRequest& request) {
  const DataFolder data{request.data};
  const Plan& plan = request.plan;
  FORETRAIN_TRY(const Semantics framework, data.semantics(plan.job.semantics));
  FORETRAIN_TRY(const Calibration calibrated, load_calibration(data.root, plan.cluster.device));
  FORETRAIN_TRY(const OnDevice own, on_device(framework, calibrated, plan.cluster.device, data.root));
  if (plan.layout.world() > device_count(plan.cluster))
    return fail("plan:/layout", "the layout needs " + std::to_string(plan.layout.world()) +
                                    " devices, the cluster has " + std::to_string(device_count(plan.cluster)));
  const Program program = lower(plan, own.semantics);
  return simulate_program(program, plan.cluster, own.calibration, {plan.job.precision, plan.layout.offload.optimizer},
                          own.semantics, request.record, request.fold);
}

} // namespace foretrain
