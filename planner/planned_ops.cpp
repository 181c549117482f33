#include "planner/planned_ops.h"

#include "core/program/memory.h"
#include "core/program/names.h"
#include "simulator/replay.h"

namespace foretrain {
namespace {

/// A boundary's transfer to the next stage, undisturbed.
double transfer_seconds(const Program& program, const Role& role, const CostModel& cost) {
  if (program.stages == 1) return 0;
  const Mesh& mesh = program.mesh;
  const int next = (role.stage + 1) % program.stages;
  return cost.transfer(mesh.tier_between(mesh.on_stage(0, role.stage), mesh.on_stage(0, next)), role.boundary).seconds;
}

double seconds_of(const Op& op, const CostDurations& durations) {
  if (op.kind != OpKind::collective) return durations.local_seconds(op);
  const Traffic traffic = durations.collective(op);
  return traffic.wire.latency + traffic.wire.seconds;
}

} // namespace

std::vector<PlannedOp> planned_ops(const Program& program, const Role& role, const CostModel& cost,
                                   const Semantics& semantics) {
  const CostDurations durations(cost, program, semantics);
  const double transfer = transfer_seconds(program, role, cost);
  std::vector<PlannedOp> ops;
  for_each_place(program, role, [&](OpPlace place, const Op* op) {
    PlannedOp planned;
    if (op) {
      planned.part = op->part;
      planned.seconds = seconds_of(*op, durations);
      if (op->kind == OpKind::compute) planned.evidence = cost.compute(*op).evidence;
    } else {
      planned.part = TimePart::pp;
      const InstructionKind kind = role.instructions[static_cast<std::size_t>(place.instruction)].kind;
      const bool waits = kind == InstructionKind::wait_receive || kind == InstructionKind::wait_send;
      planned.seconds = waits ? transfer : 0;
    }
    planned.place = std::move(place);
    ops.push_back(std::move(planned));
  });
  return ops;
}

std::vector<PlannedPeak> planned_peaks(const Program& program, const Role& role) {
  std::vector<PlannedPeak> list;
  for (const MemoryPoint& point : memory_timeline(program, role)) {
    const Instruction& instruction = role.instructions[static_cast<std::size_t>(point.instruction)];
    PlannedPeak peak{point.instruction, "", point.peak.value};
    if (instruction.kind == InstructionKind::slot)
      peak.name = std::string(id_of(instruction.pass)) + ", micro-batch " + std::to_string(instruction.micro_batch) +
                  ", chunk " + std::to_string(instruction.chunk);
    else if (instruction.kind == InstructionKind::step)
      peak.name = "step " + std::to_string(instruction.step) + " " + place_of(role, point.instruction).name;
    else
      continue;
    list.push_back(std::move(peak));
  }
  return list;
}

std::string kind_of(const OpPlace& place) {
  if (place.pass == Pass::step) return "step " + place.name;
  return std::string(id_of(place.pass)) + " " + place.name;
}

} // namespace foretrain
