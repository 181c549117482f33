#include "core/program/instructions.h"

#include <optional>

namespace foretrain {
namespace {

bool is_gradient(Pass pass) { return pass == Pass::backward || pass == Pass::input; }

Instruction transfer(InstructionKind kind, const ScheduleSlot& slot, int peer, int batch) {
  Instruction instruction;
  instruction.kind = kind;
  instruction.pass = is_gradient(slot.pass) ? Pass::backward : Pass::forward;
  instruction.chunk = slot.chunk;
  instruction.micro_batch = slot.micro_batch;
  instruction.peer = peer;
  instruction.batch = batch;
  return instruction;
}

Instruction run(const ScheduleSlot& slot) {
  Instruction instruction;
  instruction.kind = InstructionKind::slot;
  instruction.pass = slot.pass;
  instruction.chunk = slot.chunk;
  instruction.micro_batch = slot.micro_batch;
  return instruction;
}

/// Activations come from the stage before, gradients from the one after; what is sent goes the other way.
int source(const ScheduleSlot& slot) { return is_gradient(slot.pass) ? 1 : -1; }

} // namespace

bool needs_receive(const ScheduleSlot& slot, const ScheduleShape& shape, int stage) {
  const int depth = slot.chunk * shape.stages + stage;
  if (slot.pass == Pass::forward) return depth > 0;
  return is_gradient(slot.pass) && depth < shape.stages * shape.chunks - 1;
}

bool needs_send(const ScheduleSlot& slot, const ScheduleShape& shape, int stage) {
  const int depth = slot.chunk * shape.stages + stage;
  if (slot.pass == Pass::forward) return depth < shape.stages * shape.chunks - 1;
  return is_gradient(slot.pass) && depth > 0;
}

std::vector<Instruction> instructions_of(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape, int stage,
                                         bool blocking) {
  std::vector<Instruction> list;
  list.reserve(order.size() * 5);
  int batch = 0;
  const auto receive = [&](const ScheduleSlot& slot, int number) {
    list.push_back(transfer(InstructionKind::receive, slot, source(slot), number));
  };
  const auto wait_receive = [&](const ScheduleSlot& slot) {
    list.push_back(transfer(InstructionKind::wait_receive, slot, source(slot), -1));
  };
  if (!order.empty() && needs_receive(order.front(), shape, stage)) {
    receive(order.front(), batch++);
    if (blocking) wait_receive(order.front());
  }
  std::optional<ScheduleSlot> in_flight; // overlapped: a send that is waited for one slot later
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ScheduleSlot& slot = order[i];
    const ScheduleSlot* next = i + 1 < order.size() && needs_receive(order[i + 1], shape, stage) ? &order[i + 1] : nullptr;
    const bool sends = needs_send(slot, shape, stage);
    if (!blocking) {
      if (next) receive(*next, batch++);
      if (needs_receive(slot, shape, stage)) wait_receive(slot);
    }
    list.push_back(run(slot));
    if (!blocking && in_flight) {
      list.push_back(transfer(InstructionKind::release_send, *in_flight, -source(*in_flight), -1));
      in_flight.reset();
    }
    if (sends) list.push_back(transfer(InstructionKind::send, slot, -source(slot), batch));
    if (blocking) {
      if (next) receive(*next, batch);
      if (sends) list.push_back(transfer(InstructionKind::wait_send, slot, -source(slot), -1));
      if (next) wait_receive(*next);
    } else if (sends) in_flight = slot;
    if (sends || (blocking && next)) ++batch;
  }
  if (in_flight) list.push_back(transfer(InstructionKind::release_send, *in_flight, -source(*in_flight), -1));
  return list;
}

} // namespace foretrain
