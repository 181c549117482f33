#include "simulator/booking.h"

#include <algorithm>

namespace foretrain {
namespace {

void book(const LaneRun& waited, double from, double to, RankRun& out) {
  if (to <= from) return;
  double start = from;
  if (waited.bubble_before) {
    start = std::clamp(waited.started, from, to);
    out.parts[static_cast<std::size_t>(TimePart::bubble)] += Seconds(start - from);
  }
  out.parts[static_cast<std::size_t>(waited.part)] += Seconds(to - start);
}

} // namespace

void book_wait(RankState& state, Lane lane, double now, RankRun& out) {
  book(state.lanes[at(lane)], state.idle_since, now, out);
  state.idle_since = now;
}

void book_end(RankState& state, RankRun& out) {
  const LaneRun* last = nullptr;
  for (const LaneRun& run : state.lanes)
    if (run.done > 0 && (last == nullptr || run.ended > last->ended)) last = &run;
  out.finish = last == nullptr ? 0 : last->ended;
  if (last != nullptr) book(*last, state.idle_since, out.finish, out);
}

void book_until(const RankState& state, double seconds, RankRun& out) {
  const double end = std::max(out.finish, state.idle_since);
  out.parts[static_cast<std::size_t>(TimePart::bubble)] += Seconds(seconds - end);
}

} // namespace foretrain
