#include "simulator/replay.h"

#include "simulator/block_time.h"

namespace foretrain {
namespace {

/// Time that compute on a rank loses while a transfer runs, as a factor: a rate of 0.8 is a slowdown of 0.25.
double slowdown(double rate) {
  return rate > 0 && rate < 1 ? 1 / rate - 1 : 0;
}

} // namespace

double CostDurations::local_seconds(const Op& op) const {
  switch (op.kind) {
  case OpKind::compute:
    return cost_.compute(op).seconds;
  case OpKind::host_sync:
    return semantics_.moe_host_sync.value;
  case OpKind::copy:
    return cost_.host_copy(op.bytes).seconds;
  case OpKind::collective:
    break;
  }
  return 0;
}

Traffic CostDurations::collective(const Op& op) const {
  const GroupShape& shape = program_.mesh.shape(op.group);
  Traffic traffic;
  traffic.wire = cost_.wire(op.collective, shape, op.dtype, op.bytes, op.rounds, network_share(op, shape));
  traffic.slowdown = slowdown(cost_.interference(shape));
  traffic.beside = cost_.transfer_rate();
  return traffic;
}

Traffic CostDurations::transfer(Bytes bytes, int tier) const {
  return {cost_.boundary_wire(tier, bytes, program_.boundary_parts, program_.mesh.shape(Group::tp)),
          slowdown(cost_.transfer_interference()), 1};
}

Result<Simulation> replay(const Script& script, const TierRates& rates, ReplayOptions options) {
  const World world = one_rank_per_stage(*script.program, script.groups_used);
  PrivateNetwork network(world, script, rates);
  FORETRAIN_TRY(const MachineRun run,
                run_machine(script, world, network, {options.record, options.ranks_per_processor}));
  return summarise(script, run);
}

Result<Simulation> replay(const Program& program, const CostModel& cost, const Semantics& semantics,
                          ReplayOptions options) {
  const CostDurations durations(cost, program, semantics);
  const Script script = build_script(program, durations, {!options.record});
  options.ranks_per_processor = cost.ranks_per_processor();
  return replay(script, tier_rates(cost, script), options);
}

} // namespace foretrain
