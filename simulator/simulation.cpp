#include "simulator/simulation.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/program/names.h"

namespace foretrain {
namespace {

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

std::string_view letter_of(Pass pass) {
  switch (pass) {
  case Pass::forward:
    return "F";
  case Pass::backward:
    return "B";
  case Pass::input:
    return "I";
  case Pass::weight:
    return "W";
  case Pass::recompute:
    return "R";
  case Pass::step:
    return "S";
  }
  return "";
}

std::string describe(const ScriptStep& step, const Instruction& source) {
  if (step.op == nullptr) {
    const bool sends = step.kind == ScriptStepKind::send;
    return fmt::format("{} {}{}", sends ? "send" : "receive", letter_of(source.pass), source.micro_batch);
  }
  const Op& op = *step.op;
  const std::string what = op.kind == OpKind::collective  ? words_of(id_of(op.collective))
                           : op.kind == OpKind::host_sync ? "host sync"
                           : op.kind == OpKind::copy      ? "copy"
                           : op.segment == Segment::none  ? "op"
                                                          : words_of(id_of(op.segment));
  const std::string group = op.kind == OpKind::collective ? " " + words_of(id_of(op.group)) : std::string();
  if (source.kind == InstructionKind::step) return fmt::format("{}{}", what, group);
  return fmt::format("{}{} {}{}", what, group, letter_of(op.pass), source.micro_batch);
}

std::int64_t persistent_of(const Role& role) {
  std::int64_t bytes = 0;
  for (const Persistent& entry : role.persistent) bytes += entry.bytes.value;
  return bytes;
}

/// Walks a role's steps in issue order: visit(instruction number, step number, allocated before, step) and transfers
/// as steps without a number.
template <class Visit> void walk_memory(const Script& script, int stage, Visit&& visit) {
  const RoleScript& role = script.roles[index(stage)];
  std::int64_t allocated = persistent_of(script.program->roles[index(stage)]);
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const ScriptInstruction& instruction = role.instructions[i];
    const ScriptSlot& slot = script.slots[index(instruction.slot)];
    if (instruction.net != 0) visit(i, -1, allocated, instruction.net, std::max<std::int64_t>(instruction.net, 0));
    allocated += instruction.net;
    for (std::size_t s = 0; s < slot.steps.size(); ++s) {
      const ScriptStep& step = slot.steps[s];
      visit(i, static_cast<int>(s), allocated, step.net, step.peak);
      allocated += step.net;
    }
  }
}

/// Memory changes when the host issues an op; a sample stands at the start of the compute step issued last.
std::vector<MemorySample> timeline_of(const Script& script, int stage, const std::vector<StepRecord>& records) {
  const RoleScript& role = script.roles[index(stage)];
  std::vector<std::vector<double>> starts(role.instructions.size());
  for (std::size_t i = 0; i < starts.size(); ++i)
    starts[i].assign(script.slots[index(role.instructions[i].slot)].steps.size(), -1);
  for (const StepRecord& record : records) {
    const ScriptSlot& slot = script.slots[index(role.instructions[index(record.instruction)].slot)];
    if (slot.steps[index(record.step)].lane == Lane::compute)
      starts[index(record.instruction)][index(record.step)] = record.start;
  }
  std::vector<MemorySample> samples;
  double clock = 0;
  walk_memory(script, stage, [&](std::size_t i, int step, std::int64_t allocated, std::int64_t net, std::int64_t peak) {
    if (step >= 0) clock = std::max(clock, starts[i][index(step)]);
    if (samples.empty() || samples.back().at < clock) samples.push_back({clock, Bytes(allocated), Bytes(allocated)});
    samples.back().peak = std::max(samples.back().peak, Bytes(allocated + peak));
    samples.back().allocated = Bytes(allocated + net);
  });
  return samples;
}

void add_events(const Script& script, const RankRun& rank, std::vector<TimelineEvent>& events) {
  const RoleScript& role = script.roles[index(rank.stage)];
  for (const StepRecord& record : rank.records) {
    const Instruction& source = role.source[index(record.instruction)];
    const ScriptSlot& slot = script.slots[index(role.instructions[index(record.instruction)].slot)];
    const ScriptStep& step = slot.steps[index(record.step)];
    TimelineEvent event;
    event.stage = rank.stage;
    event.lane = step.lane;
    event.part = step.part;
    event.name = describe(step, source);
    event.start = record.start;
    event.end = record.end;
    event.micro_batch = source.kind == InstructionKind::step ? -1 : source.micro_batch;
    event.layer = step.layer;
    events.push_back(std::move(event));
  }
}

} // namespace

Bytes peak_of(const Script& script, int stage) {
  std::int64_t highest = persistent_of(script.program->roles[index(stage)]);
  walk_memory(script, stage, [&](std::size_t, int, std::int64_t allocated, std::int64_t, std::int64_t peak) {
    highest = std::max(highest, allocated + peak);
  });
  return Bytes(highest);
}

Simulation summarise(const Script& script, const MachineRun& run) {
  Simulation out;
  out.step_time = Seconds(run.seconds);
  out.ranks = static_cast<int>(run.ranks.size());
  out.steps = run.steps;
  out.transfers = run.transfers;
  out.stages.resize(script.roles.size());
  std::vector<bool> seen(out.stages.size(), false);
  for (const RankRun& rank : run.ranks) {
    StageRun& stage = out.stages[index(rank.stage)];
    stage.finish = std::max(stage.finish, rank.finish);
    if (seen[index(rank.stage)]) continue;
    seen[index(rank.stage)] = true;
    stage.compute = rank.compute;
    stage.slowed = rank.slowed;
    stage.parts = rank.parts;
    stage.peak = peak_of(script, rank.stage);
    if (rank.records.empty()) continue;
    stage.memory = timeline_of(script, rank.stage, rank.records);
    add_events(script, rank, out.events);
  }
  for (std::size_t stage = 1; stage < out.stages.size(); ++stage) {
    const auto bubble = [&](std::size_t s) { return out.stages[s].parts[static_cast<std::size_t>(TimePart::bubble)]; };
    if (bubble(stage) < bubble(index(out.critical_stage))) out.critical_stage = static_cast<int>(stage);
  }
  if (!out.stages.empty()) out.time = out.stages[index(out.critical_stage)].parts;
  return out;
}

} // namespace foretrain
