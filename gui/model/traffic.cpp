// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/traffic.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace foretrain::gui {
namespace {

/// The group whose members a part's transfers go between; nothing for work that is no transfer.
std::optional<Group> group_of(TimePart part) {
  constexpr std::array kTransfers = {std::pair(TimePart::tp, Group::tp), std::pair(TimePart::cp, Group::cp),
                                     std::pair(TimePart::ep, Group::ep), std::pair(TimePart::pp, Group::pp),
                                     std::pair(TimePart::dp, Group::data)};
  for (const auto& [transfer, group] : kTransfers)
    if (transfer == part) return group;
  return std::nullopt;
}

} // namespace

double end_of(const Simulation& simulation) {
  double end = simulation.step_time.value;
  for (const StageRun& stage : simulation.stages) end = std::max(end, stage.finish);
  return end;
}

void Traffic::merge(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < intervals.size(); ++i) {
    if (intervals[i].start <= intervals[last].end)
      intervals[last].end = std::max(intervals[last].end, intervals[i].end);
    else
      intervals[++last] = intervals[i];
  }
  if (!intervals.empty()) intervals.resize(last + 1);
}

bool Traffic::covers(const std::vector<Interval>& busy, double seconds) {
  const auto after =
      std::partition_point(busy.begin(), busy.end(), [&](const Interval& i) { return i.start <= seconds; });
  return after != busy.begin() && std::prev(after)->end > seconds;
}

Traffic::Traffic(const Simulation& simulation, const Mesh& mesh)
    : stages_(simulation.stages.size()), step_(simulation.step_time.value), end_(end_of(simulation)),
      tiers_(static_cast<int>(mesh.fanouts().size())) {
  for (const TimelineEvent& event : simulation.events) {
    if (event.lane == Lane::compute || event.end <= event.start) continue;
    if (event.stage < 0 || event.stage >= static_cast<int>(stages_.size())) continue;
    const auto group = group_of(event.part);
    if (!group || mesh.size(*group) < 2) continue;
    const Use use{event.part, mesh.shape(*group).tier()};
    std::vector<Line>& lines = stages_[static_cast<std::size_t>(event.stage)];
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.use == use; });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{use, {}});
    line->busy.push_back({event.start, event.end});
    end_ = std::max(end_, event.end);
  }
  for (auto& lines : stages_)
    for (Line& line : lines) merge(line.busy);
}

std::vector<Traffic::Use> Traffic::at(int stage, double seconds) const {
  std::vector<Use> uses;
  if (stage < 0 || stage >= static_cast<int>(stages_.size())) return uses;
  for (const Line& line : stages_[static_cast<std::size_t>(stage)])
    if (covers(line.busy, seconds)) uses.push_back(line.use);
  return uses;
}

double Traffic::share(int tier, double seconds) const {
  if (stages_.empty()) return 0;
  int busy = 0;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    const std::vector<Use> uses = at(static_cast<int>(stage), seconds);
    busy += std::any_of(uses.begin(), uses.end(), [tier](const Use& use) { return use.tier == tier; }) ? 1 : 0;
  }
  return double(busy) / double(stages_.size());
}

double Traffic::average(int tier) const {
  if (stages_.empty() || !(step_ > 0)) return 0;
  double seconds = 0;
  for (const auto& lines : stages_) {
    std::vector<Interval> all;
    for (const Line& line : lines)
      if (line.use.tier == tier) all.insert(all.end(), line.busy.begin(), line.busy.end());
    merge(all);
    for (const Interval& interval : all) seconds += interval.end - interval.start;
  }
  return seconds / step_ / double(stages_.size());
}

} // namespace foretrain::gui
