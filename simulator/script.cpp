#include "simulator/script.h"

#include <map>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "simulator/script_slot.h"

namespace foretrain {
namespace {

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

/// Lists the instructions of one role.
class RoleBuilder {
public:
  RoleBuilder(const Program& program, const Role& role, ScriptOptions options, ScriptCosts& costs, Script& script)
      : program_(program), role_(role), options_(options), costs_(costs), script_(script) {}

  RoleScript build() {
    for (const Instruction& instruction : role_.instructions) add(instruction);
    return std::move(out_);
  }

private:
  using Key = std::tuple<int, int, int>; ///< pass, chunk, micro-batch

  static Key key(const Instruction& instruction) {
    return {static_cast<int>(instruction.pass), instruction.chunk, instruction.micro_batch};
  }

  void add(const Instruction& instruction) {
    const bool forward = instruction.pass == Pass::forward;
    const Lane sends = forward ? Lane::send_forward : Lane::send_backward;
    const Lane receives = forward ? Lane::receive_forward : Lane::receive_backward;
    ScriptInstruction next;
    next.base = out_.total;
    switch (instruction.kind) {
    case InstructionKind::slot: {
      next.slot = slot_of(instruction);
      // The slot that a receive feeds: forward, or whichever pass consumes the gradient of the output.
      if (instruction.pass != Pass::weight)
        if (const auto it = received_.find(feed(instruction)); it != received_.end())
          next.waits.push_back({receives, it->second});
      push(std::move(next), instruction);
      if (instruction.pass != Pass::weight) produced_[feed(instruction)] = out_.total;
      return;
    }
    case InstructionKind::receive:
      next.slot = transfer_slot(ScriptStepKind::receive, receives);
      next.net = role_.boundary.value;
      transfer(next, instruction);
      push(std::move(next), instruction);
      received_[key(instruction)] = out_.total[at(receives)];
      return;
    case InstructionKind::send: {
      next.slot = transfer_slot(ScriptStepKind::send, sends);
      transfer(next, instruction);
      const auto it = produced_.find(key(instruction));
      FORETRAIN_CHECK(it != produced_.end(), "a send follows the slot whose result it sends");
      for (const Lane lane : {Lane::compute, Lane::tp, Lane::cp, Lane::ep})
        if (it->second[at(lane)] > 0) next.waits.push_back({lane, it->second[at(lane)]});
      push(std::move(next), instruction);
      sent_[key(instruction)] = out_.total[at(sends)];
      return;
    }
    case InstructionKind::wait_receive:
      if (const auto it = received_.find(key(instruction)); it != received_.end())
        next.waits.push_back({receives, it->second});
      next.slot = gate_slot();
      push(std::move(next), instruction);
      return;
    case InstructionKind::wait_send:
      if (const auto it = sent_.find(key(instruction)); it != sent_.end()) next.waits.push_back({sends, it->second});
      next.net = -role_.boundary.value;
      next.slot = gate_slot();
      push(std::move(next), instruction);
      return;
    case InstructionKind::release_send:
      next.net = -role_.boundary.value;
      next.slot = empty_slot();
      push(std::move(next), instruction);
      return;
    case InstructionKind::step:
      next.slot = step_slot(instruction.step);
      for (int lane = 0; lane < kLanes; ++lane)
        if (out_.total[index(lane)] > 0) next.waits.push_back({static_cast<Lane>(lane), out_.total[index(lane)]});
      push(std::move(next), instruction);
      return;
    }
  }

  /// I and B consume the gradient that a receive of the backward direction brings.
  static Key feed(const Instruction& slot) {
    const Pass pass = slot.pass == Pass::forward ? Pass::forward : Pass::backward;
    return {static_cast<int>(pass), slot.chunk, slot.micro_batch};
  }

  void push(ScriptInstruction instruction, const Instruction& source) {
    const ScriptSlot& slot = script_.slots[index(instruction.slot)];
    const int number = static_cast<int>(out_.instructions.size());
    for (int lane = 0; lane < kLanes; ++lane) {
      const int steps = static_cast<int>(slot.by_lane[index(lane)].size());
      if (steps > 0) out_.by_lane[index(lane)].push_back(number);
      out_.total[index(lane)] += steps;
    }
    out_.instructions.push_back(std::move(instruction));
    out_.source.push_back(source);
  }

  void transfer(ScriptInstruction& next, const Instruction& instruction) {
    next.peer = instruction.peer;
    const int stages = program_.stages;
    const int here = program_.mesh.on_stage(0, role_.stage);
    const int there = program_.mesh.on_stage(0, ((role_.stage + instruction.peer) % stages + stages) % stages);
    const int tier = here == there ? 0 : program_.mesh.tier_between(here, there);
    next.wire = costs_.transfer(role_.boundary, tier);
  }

  int slot_of(const Instruction& instruction) {
    const bool first = instruction.micro_batch == 0;
    const bool last = instruction.micro_batch == program_.micro_batches - 1;
    const std::tuple<int, int, bool, bool> variant{static_cast<int>(instruction.pass), instruction.chunk, first, last};
    const auto found = slots_.find(variant);
    if (found != slots_.end()) return found->second;
    const int number = add_slot(build_slot(program_, role_, instruction, options_, costs_));
    slots_[variant] = number;
    return number;
  }

  int add_slot(ScriptSlot slot) {
    script_.slots.push_back(std::move(slot));
    return static_cast<int>(script_.slots.size()) - 1;
  }

  int single(ScriptStep step) {
    ScriptSlot slot;
    slot.by_lane[at(step.lane)].push_back(0);
    slot.steps.push_back(std::move(step));
    return add_slot(std::move(slot));
  }

  int transfer_slot(ScriptStepKind kind, Lane lane) {
    int& slot = transfers_[at(lane)];
    if (slot >= 0) return slot;
    ScriptStep step;
    step.kind = kind;
    step.lane = lane;
    step.part = TimePart::pp;
    step.entry = true;
    // A send is issued behind the compute before it; so is a blocking receive. Others are posted ahead.
    if (kind == ScriptStepKind::send || program_.blocking_p2p) step.after = 0;
    return slot = single(std::move(step));
  }

  int gate_slot() {
    if (gate_ >= 0) return gate_;
    ScriptStep step;
    step.kind = ScriptStepKind::gate;
    step.entry = true;
    return gate_ = single(std::move(step));
  }

  int empty_slot() {
    if (empty_ < 0) empty_ = add_slot(ScriptSlot{});
    return empty_;
  }

  int step_slot(int number) {
    FORETRAIN_CHECK(number >= 0 && number < static_cast<int>(role_.step.size()), "a step instruction names an op");
    const Op& op = role_.step[index(number)];
    ScriptStep step;
    costs_.fill(step, op);
    step.entry = true;
    if (index(number) < role_.step_peak.size()) step.peak = role_.step_peak[index(number)].value;
    return single(std::move(step));
  }

  const Program& program_;
  const Role& role_;
  ScriptOptions options_;
  ScriptCosts& costs_;
  Script& script_;
  RoleScript out_;
  std::map<std::tuple<int, int, bool, bool>, int> slots_;
  std::map<Key, int> received_;
  std::map<Key, int> sent_;
  std::map<Key, LaneCounts> produced_;
  std::array<int, kLanes> transfers_ = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  int gate_ = -1;
  int empty_ = -1;
};

} // namespace

std::string_view name_of(Lane lane) {
  switch (lane) {
  case Lane::compute:
    return "compute";
  case Lane::tp:
    return "tp";
  case Lane::cp:
    return "cp";
  case Lane::ep:
    return "ep";
  case Lane::gradients:
    return "gradients";
  case Lane::parameters:
    return "parameters";
  case Lane::host:
    return "host";
  case Lane::send_forward:
    return "send forward";
  case Lane::send_backward:
    return "send backward";
  case Lane::receive_forward:
    return "receive forward";
  case Lane::receive_backward:
    return "receive backward";
  }
  return "";
}

Lane lane_of(Stream stream) {
  switch (stream) {
  case Stream::compute:
    return Lane::compute;
  case Stream::tp:
    return Lane::tp;
  case Stream::cp:
    return Lane::cp;
  case Stream::ep:
    return Lane::ep;
  case Stream::gradients:
    return Lane::gradients;
  case Stream::parameters:
    return Lane::parameters;
  case Stream::host:
    return Lane::host;
  case Stream::p2p_forward:
    return Lane::send_forward;
  case Stream::p2p_backward:
    return Lane::send_backward;
  }
  return Lane::compute;
}

Script build_script(const Program& program, const Durations& durations, ScriptOptions options) {
  Script script;
  script.program = &program;
  ScriptCosts costs(program, durations, script);
  for (const Role& role : program.roles)
    script.roles.push_back(RoleBuilder(program, role, options, costs, script).build());
  return script;
}

} // namespace foretrain
