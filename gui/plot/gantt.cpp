// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/plot/gantt.h"

#include <algorithm>

namespace foretrain::gui {
namespace {

auto first_ending_after(const std::vector<Span>& lane, double time) {
  return std::partition_point(lane.begin(), lane.end(), [time](const Span& span) { return span.end <= time; });
}

} // namespace

std::vector<Box> visible_boxes(const std::vector<Span>& lane, double from, double to, double least) {
  constexpr double kWidest = 4; // pixels of a merged box: what changes over time stays visible
  std::vector<Box> boxes;
  std::array<double, 8> times{};
  const auto close = [&] {
    if (boxes.empty() || boxes.back().source >= 0) return;
    double sum = 0;
    for (const double time : times) sum += time;
    for (std::size_t kind = 0; kind < times.size(); ++kind)
      boxes.back().shares[kind] = static_cast<float>(sum > 0 ? times[kind] / sum : 0);
  };
  const auto count = [&](const Span& span) {
    times[static_cast<std::size_t>(std::clamp(span.kind, 0, 7))] += span.end - span.start;
  };
  for (auto span = first_ending_after(lane, from); span != lane.end() && span->start < to; ++span) {
    const bool narrow = span->end - span->start < least;
    if (narrow && !boxes.empty()) {
      Box& last = boxes.back();
      const bool last_narrow = last.source < 0 || last.end - last.start < least;
      if (last_narrow && span->start - last.end < least && span->end - last.start <= kWidest * least) {
        last.end = span->end;
        last.source = -1;
        last.label = -1;
        count(*span);
        continue;
      }
    }
    close();
    times = {};
    count(*span);
    boxes.push_back({span->start, span->end, span->kind, span->label, span->source, {}});
  }
  close();
  return boxes;
}

int span_at(const std::vector<Span>& lane, double time) {
  const auto span = first_ending_after(lane, time);
  return span != lane.end() && span->start <= time ? static_cast<int>(span - lane.begin()) : -1;
}

double idle_time(const std::vector<Span>& lane, double from, double to) {
  double busy = 0;
  for (auto span = first_ending_after(lane, from); span != lane.end() && span->start < to; ++span)
    busy += std::min(span->end, to) - std::max(span->start, from);
  return std::max(0.0, to - from - busy);
}

std::vector<Span> joined(const std::vector<Span>& lane, double gap) {
  std::vector<Span> joined;
  for (const Span& span : lane) {
    if (!joined.empty() && joined.back().kind == span.kind && joined.back().label == span.label &&
        span.start - joined.back().end <= gap)
      joined.back().end = span.end;
    else
      joined.push_back(span);
  }
  return joined;
}

} // namespace foretrain::gui
