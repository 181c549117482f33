#include "core/program/instructions.h"

#include <algorithm>
#include <array>
#include <optional>

namespace foretrain {
namespace {

bool is_gradient(Pass pass) {
  return pass == Pass::backward || pass == Pass::input;
}

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
int source(const ScheduleSlot& slot) {
  return is_gradient(slot.pass) ? 1 : -1;
}

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

std::vector<ReceivePost> posts_of(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape, int stage) {
  std::vector<ReceivePost> posts;
  std::array<std::vector<std::size_t>, 2> passes; // slots so far that go forward, and back
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ScheduleSlot& slot = order[i];
    const bool back = is_gradient(slot.pass);
    if (!back && slot.pass != Pass::forward) continue;
    std::vector<std::size_t>& own = passes[back ? 1 : 0];
    own.push_back(i);
    if (!needs_receive(slot, shape, stage)) continue;
    std::size_t before = i;
    if (stage == (back ? shape.stages - 1 : 0)) { // it comes round
      const int first = slot.micro_batch / shape.turn() * shape.turn();
      const int turn = std::min(shape.turn(), shape.micro_batches - first);
      before = own[own.size() - 1 - static_cast<std::size_t>(std::max(0, turn - shape.stages))];
    }
    posts.push_back({before > 0 ? before - 1 : 0, i});
  }
  const auto earlier = [](const ReceivePost& a, const ReceivePost& b) { return a.before < b.before; };
  if (!std::is_sorted(posts.begin(), posts.end(), earlier)) std::stable_sort(posts.begin(), posts.end(), earlier);
  return posts;
}

std::vector<SlotUnit> units_of(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape, int stage) {
  const auto warm_up = static_cast<std::size_t>(2 * (shape.stages - stage - 1) + (shape.chunks - 1) * shape.turn());
  std::vector<SlotUnit> units;
  for (std::size_t i = 0; i < order.size();) {
    const bool pair = shape.chunks > 1 && i >= warm_up && i + 1 < order.size() && order[i].pass == Pass::forward &&
                      is_gradient(order[i + 1].pass);
    units.push_back({i, i + (pair ? 2 : 1)});
    i = units.back().end;
  }
  return units;
}

namespace {

/// After each unit, what it made is sent and what the next one needs is received, in one batch that compute waits for.
std::vector<Instruction> blocking_instructions(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape,
                                               int stage) {
  std::vector<Instruction> list;
  list.reserve(order.size() * 5);
  const std::vector<SlotUnit> units = units_of(order, shape, stage);
  int batch = 0;
  const auto each = [&](const SlotUnit& unit, bool sends, InstructionKind kind, int number) {
    for (std::size_t i = unit.first; i < unit.end; ++i)
      if (sends ? needs_send(order[i], shape, stage) : needs_receive(order[i], shape, stage))
        list.push_back(transfer(kind, order[i], sends ? -source(order[i]) : source(order[i]), number));
  };
  const auto exchange = [&](const SlotUnit& before, const SlotUnit& after) {
    const std::size_t start = list.size();
    each(before, true, InstructionKind::send, batch);
    each(after, false, InstructionKind::receive, batch);
    each(before, true, InstructionKind::wait_send, -1);
    each(after, false, InstructionKind::wait_receive, -1);
    if (list.size() > start) ++batch;
  };
  exchange({}, units.empty() ? SlotUnit{} : units.front());
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t i = units[u].first; i < units[u].end; ++i) list.push_back(run(order[i]));
    exchange(units[u], u + 1 < units.size() ? units[u + 1] : SlotUnit{});
  }
  return list;
}

/// Receives are posted ahead of the slots that take them; a send is released one slot later.
std::vector<Instruction> overlapped_instructions(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape,
                                                 int stage) {
  std::vector<Instruction> list;
  list.reserve(order.size() * 5);
  int batch = 0;
  const auto receive = [&](const ScheduleSlot& slot) {
    list.push_back(transfer(InstructionKind::receive, slot, source(slot), batch++));
  };
  const std::vector<ReceivePost> posts = posts_of(order, shape, stage);
  std::size_t next = 0;
  std::optional<ScheduleSlot> in_flight;
  const auto release = [&] {
    if (in_flight) list.push_back(transfer(InstructionKind::release_send, *in_flight, -source(*in_flight), -1));
    in_flight.reset();
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ScheduleSlot& slot = order[i];
    for (; next < posts.size() && posts[next].before == i; ++next) receive(order[posts[next].slot]);
    if (needs_receive(slot, shape, stage))
      list.push_back(transfer(InstructionKind::wait_receive, slot, source(slot), -1));
    list.push_back(run(slot));
    release();
    if (!needs_send(slot, shape, stage)) continue;
    list.push_back(transfer(InstructionKind::send, slot, -source(slot), batch++));
    in_flight = slot;
  }
  release();
  return list;
}

} // namespace

std::vector<Instruction> instructions_of(const std::vector<ScheduleSlot>& order, const ScheduleShape& shape, int stage,
                                         bool blocking) {
  return blocking ? blocking_instructions(order, shape, stage) : overlapped_instructions(order, shape, stage);
}

} // namespace foretrain
