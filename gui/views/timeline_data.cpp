// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/timeline_data.h"

#include <algorithm>
#include <cctype>

namespace foretrain::gui {
namespace {
constexpr double kSameEnd = 1e-9; ///< of sums of durations
} // namespace

PassKind pass_of(const TimelineEvent& event) {
  if (event.lane != Lane::compute) return PassKind::transfer;
  if (event.micro_batch < 0) return PassKind::step;
  const std::size_t space = event.name.rfind(' ');
  const char letter = space == std::string::npos || space + 1 >= event.name.size() ? 'F' : event.name[space + 1];
  switch (letter) {
  case 'B':
    return PassKind::backward;
  case 'I':
    return PassKind::input;
  case 'W':
    return PassKind::weight;
  case 'R':
    return PassKind::recompute;
  case 'S':
    return PassKind::step;
  default:
    return PassKind::forward;
  }
}

QColor pass_color(const Theme& theme, int kind) {
  switch (static_cast<PassKind>(kind)) {
  case PassKind::forward:
    return theme.series[0];
  case PassKind::backward:
    return theme.series[1];
  case PassKind::input:
    return theme.series[5];
  case PassKind::weight:
    return theme.series[2];
  case PassKind::recompute:
    return theme.series[4];
  case PassKind::step:
    return theme.series[3];
  case PassKind::transfer:
    return theme.series[7];
  }
  return theme.text;
}

bool splits_backward(const Layout& layout) {
  return layout.schedule.kind.starts_with("zb");
}

Timeline timeline_of(const Simulation& simulation, bool splits_backward) {
  Timeline timeline;
  timeline.step = simulation.step_time.value;
  timeline.end = timeline.step;
  timeline.stages.resize(simulation.stages.size());
  timeline.kinds.assign(kPassKinds.size(), false);
  std::array<bool, kLanes> used{};
  for (const TimelineEvent& event : simulation.events) used[at(event.lane)] = true;
  for (int lane = 1; lane < kLanes; ++lane)
    if (used[static_cast<std::size_t>(lane)]) timeline.lanes.push_back(static_cast<Lane>(lane));
  for (Timeline::Stage& stage : timeline.stages) stage.beside.resize(timeline.lanes.size());
  for (std::size_t i = 0; i < simulation.events.size(); ++i) {
    const TimelineEvent& event = simulation.events[i];
    if (event.end <= event.start || event.stage >= static_cast<int>(timeline.stages.size())) continue;
    PassKind kind = pass_of(event);
    if (!splits_backward && (kind == PassKind::input || kind == PassKind::weight || kind == PassKind::recompute))
      kind = PassKind::backward;
    const Span span{event.start, event.end, static_cast<int>(kind), event.micro_batch, static_cast<int>(i)};
    Timeline::Stage& stage = timeline.stages[static_cast<std::size_t>(event.stage)];
    timeline.kinds[static_cast<std::size_t>(kind)] = true;
    if (event.end > timeline.end * (1 + kSameEnd)) timeline.end = event.end;
    if (event.lane == Lane::compute) {
      stage.passes.push_back(span);
      continue;
    }
    const auto lane = std::find(timeline.lanes.begin(), timeline.lanes.end(), event.lane) - timeline.lanes.begin();
    stage.beside[static_cast<std::size_t>(lane)].push_back(span);
  }
  const auto by_start = [](const Span& a, const Span& b) { return a.start < b.start; };
  for (Timeline::Stage& stage : timeline.stages) {
    std::stable_sort(stage.passes.begin(), stage.passes.end(), by_start);
    if (timeline.apart() && !stage.passes.empty()) stage.begin = stage.passes.front().start;
    stage.idle = std::max(0.0, timeline.step - timeline.end + idle_time(stage.passes, 0, timeline.end));
    stage.passes = joined(stage.passes, timeline.end * 2e-3);
    for (auto& lane : stage.beside) std::stable_sort(lane.begin(), lane.end(), by_start);
  }
  return timeline;
}

std::vector<Hop> hops_of(const Timeline& timeline, int micro_batch) {
  const auto one_way = [&](auto is_of, std::vector<Hop>& hops) {
    std::vector<std::pair<std::size_t, const Span*>> passes;
    for (std::size_t s = 0; s < timeline.stages.size(); ++s)
      for (const Span& span : timeline.stages[s].passes)
        if (span.label == micro_batch && is_of(static_cast<PassKind>(span.kind))) passes.emplace_back(s, &span);
    std::sort(passes.begin(), passes.end(),
              [](const auto& a, const auto& b) { return a.second->start < b.second->start; });
    for (std::size_t i = 1; i < passes.size(); ++i)
      if (const auto& [from, left] = passes[i - 1]; from != passes[i].first)
        hops.push_back({from, left->end, passes[i].first, passes[i].second->start});
  };
  std::vector<Hop> hops;
  one_way([](PassKind kind) { return kind == PassKind::forward; }, hops);
  one_way([](PassKind kind) { return kind == PassKind::backward || kind == PassKind::input; }, hops);
  return hops;
}

} // namespace foretrain::gui
