#include "simulator/booking.h"

#include <algorithm>

namespace foretrain {
namespace {

void book(const RankState& state, Lane lane, double to, RankRun& out) {
  const LaneRun& waited = state.lanes[at(lane)];
  const double from = state.idle_since;
  if (to <= from) return;
  double start = from;
  if (waited.bubble_before) {
    start = std::clamp(waited.started, from, to);
    if (state.apart && !is_p2p(lane))
      out.apart += start - from;
    else
      out.parts[static_cast<std::size_t>(TimePart::bubble)] += Seconds(start - from);
  }
  out.parts[static_cast<std::size_t>(waited.part)] += Seconds(to - start);
}

bool takes_time(const ScriptStep& step) {
  return step.kind != ScriptStepKind::gate && step.seconds > 0;
}

} // namespace

void book_begin(RankState& state, const ScriptInstruction& instruction, const ScriptStep& step, bool blocking,
                double now, RankRun& out) {
  const auto need = [&](const Dependency& dependency, int base) {
    if (dependency.lane != Lane::parameters || base + dependency.count == 0) return;
    state.own_ready = std::max(state.own_ready, state.gathered[static_cast<std::size_t>(base + dependency.count) - 1]);
  };
  if (step.entry)
    for (const Dependency& dependency : instruction.waits) need(dependency, 0);
  for (const Dependency& dependency : step.waits) need(dependency, instruction.base[at(dependency.lane)]);
  if (!takes_time(step)) return;
  state.began = true;
  // A blocking transfer holds the stage; others come in while it still ends the step before.
  const LaneRun& input = state.lanes[at(Lane::receive_forward)];
  const double transfer = blocking && input.done > 0 ? std::max(0.0, now - input.started) : 0;
  out.begin = now - std::max(state.own_ready, transfer);
  out.parts = {};
  out.parts[static_cast<std::size_t>(TimePart::pp)] = Seconds(transfer);
  out.parts[static_cast<std::size_t>(TimePart::dp)] = Seconds(now - out.begin - transfer);
}

void book_wait(RankState& state, Lane lane, double now, RankRun& out) {
  book(state, lane, now, out);
  state.idle_since = now;
}

void book_end(RankState& state, RankRun& out) {
  std::size_t last = kLanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (const LaneRun& run = state.lanes[lane]; run.done > 0 && (last == kLanes || run.ended > state.lanes[last].ended))
      last = lane;
  out.finish = last == kLanes ? 0 : state.lanes[last].ended;
  if (last != kLanes) book(state, static_cast<Lane>(last), out.finish, out);
  out.span = std::max(out.finish, state.idle_since) - out.begin - out.apart;
}

void book_until(double seconds, RankRun& out) {
  out.parts[static_cast<std::size_t>(TimePart::bubble)] += Seconds(seconds - out.span);
}

} // namespace foretrain
