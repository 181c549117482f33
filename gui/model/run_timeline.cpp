// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/run_timeline.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

#include "core/spec/names.h"

namespace foretrain::gui {
namespace {

int part_of(std::string_view id) {
  for (int part = 0; part < kTimeParts; ++part)
    if (id_of(static_cast<TimePart>(part)) == id) return part;
  return static_cast<int>(TimePart::other);
}

struct Process {
  std::string name;
  std::map<int, std::vector<RunBar>> rows; ///< by thread
};

/// The number at the end of a process' name: its stage or rank.
int number_in(const std::string& name) {
  const std::size_t space = name.rfind(' ');
  if (space == std::string::npos) return -1;
  int number = 0;
  for (const char c : std::string_view(name).substr(space + 1)) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

/// "ffn_up F" of a forecast and "forward ffn_up" of a run, of one micro-batch and layer, are one op.
std::string op_of(const std::string& name, const Json& event, bool measured) {
  const std::size_t space = measured ? name.find(' ') : name.rfind(' ');
  if (space == std::string::npos || space + 1 >= name.size()) return {};
  const char pass = measured ? name[0] : name[space + 1];
  const std::string what = measured ? name.substr(space + 1) : name.substr(0, space);
  const Json none = Json::object();
  const Json& args = event.contains("args") && event["args"].is_object() ? event["args"] : none;
  const auto number = [&](const char* key) {
    return args.contains(key) && args[key].is_number_integer() ? args[key].get<int>() : -1;
  };
  return std::string(1, static_cast<char>(std::toupper(static_cast<unsigned char>(pass)))) + " " + what + " " +
         std::to_string(number("micro_batch")) + " " + std::to_string(number("layer"));
}

/// Every op of the measured lane that the forecast has once: when it was done, against when it should have been.
std::vector<RunLag> lags_of(const RunLane& forecast, const RunLane& measured) {
  std::map<std::string, std::pair<int, double>> promised; // how often, its end
  for (const auto& row : forecast.rows)
    for (const RunBar& bar : row)
      if (!bar.op.empty()) {
        auto& [count, end] = promised[bar.op];
        ++count;
        end = bar.end;
      }
  std::vector<RunLag> lags;
  for (const auto& row : measured.rows)
    for (const RunBar& bar : row)
      if (const auto found = promised.find(bar.op); found != promised.end() && found->second.first == 1)
        lags.push_back({bar.end, bar.end - found->second.second, bar.name});
  std::stable_sort(lags.begin(), lags.end(), [](const RunLag& a, const RunLag& b) { return a.at < b.at; });
  return lags;
}

RunLane lane_of(Process& process) {
  RunLane lane;
  lane.title = process.name;
  lane.measured = process.name.starts_with("measured");
  for (auto& [thread, row] : process.rows) {
    std::stable_sort(row.begin(), row.end(), [](const RunBar& a, const RunBar& b) { return a.start < b.start; });
    lane.rows.push_back(std::move(row));
  }
  return lane;
}

} // namespace

Result<RunTimeline> run_timeline(const Json& trace, const std::vector<int>& stage_of_rank) {
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    return fail("timeline", "is no trace of foretrain compare");
  std::map<int, Process> processes;
  RunTimeline timeline;
  for (const Json& event : trace["traceEvents"]) {
    if (!event.is_object() || !event.contains("ph") || !event.contains("pid") || !event["pid"].is_number_integer())
      continue;
    Process& process = processes[event["pid"].get<int>()];
    if (event["ph"] == "M" && event.value("name", "") == "process_name") process.name = event["args"].value("name", "");
    if (event["ph"] != "X") continue;
    const double start = event.value("ts", 0.0) * 1e-6;
    const double end = start + event.value("dur", 0.0) * 1e-6;
    if (!(end > start)) continue;
    timeline.end = std::max(timeline.end, end);
    const std::string name = event.value("name", "");
    process.rows[event.value("tid", 0)].push_back(
        {start, end, part_of(event.value("cat", "")), name, op_of(name, event, process.name.starts_with("measured"))});
  }
  std::vector<std::pair<std::array<int, 3>, RunLane>> lanes; // by stage, forecast first, rank
  for (auto& [id, process] : processes) {
    const int number = number_in(process.name);
    if (number < 0 || process.rows.empty()) continue;
    RunLane lane = lane_of(process);
    const auto rank = static_cast<std::size_t>(number);
    const int stage = !lane.measured ? number : rank < stage_of_rank.size() ? stage_of_rank[rank] : 0;
    lanes.emplace_back(std::array{stage, lane.measured ? 1 : 0, number}, std::move(lane));
  }
  std::stable_sort(lanes.begin(), lanes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::size_t forecast = lanes.size();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    RunLane& lane = lanes[i].second;
    if (!lane.measured)
      forecast = i;
    else if (forecast < i && lanes[forecast].first[0] == lanes[i].first[0])
      lane.lags = lags_of(lanes[forecast].second, lane);
  }
  for (auto& [key, lane] : lanes) timeline.lanes.push_back(std::move(lane));
  return timeline;
}

Result<std::vector<RunTerm>> run_terms(const Json& comparison) {
  if (!comparison.is_object() || !comparison.contains("rows") || !comparison["rows"].is_array())
    return fail("comparison", "is no document of foretrain compare");
  std::vector<RunTerm> terms;
  for (const Json& row : comparison["rows"]) {
    if (!row.is_object() || !row.contains("predicted") || !row["predicted"].is_number() || !row.contains("measured") ||
        !row["measured"].is_number())
      continue;
    RunTerm term;
    term.item = row.value("item", "");
    if (row.contains("rank") && row["rank"].is_number_integer()) term.rank = row["rank"].get<int>();
    term.unit = row.value("unit", "");
    term.predicted = row["predicted"].get<double>();
    term.measured = row["measured"].get<double>();
    terms.push_back(std::move(term));
  }
  return terms;
}

} // namespace foretrain::gui
