#include "planner/validate/accuracy.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace foretrain::validation {
namespace {

constexpr std::size_t kWorst = 15;

AccuracyOf accuracy_of_set(const Rows& known, const Rows& judged) {
  AccuracyOf result;
  result.summary = summarise_rows(judged);
  result.sources = over_sources(judged);
  result.baselines = baselines(known, judged);
  result.time_coverage = coverage_of_time(judged);
  result.memory_coverage = coverage_of_memory(judged);
  return result;
}

std::vector<std::string> worst_rows(const Rows& rows) {
  Rows timed;
  for (const ValidatedRow* row : rows)
    if (time_error_percent(*row)) timed.push_back(row);
  const auto far = [](const ValidatedRow* row) {
    return std::abs(std::log(*row->predicted_seconds / *row->measured_seconds));
  };
  std::stable_sort(timed.begin(), timed.end(),
                   [&](const ValidatedRow* a, const ValidatedRow* b) { return far(a) > far(b); });
  if (timed.size() > kWorst) timed.resize(kWorst);
  std::vector<std::string> lines;
  for (const ValidatedRow* row : timed)
    lines.push_back(fmt::format("{} ({}): {:+.0f} %, {} on {} {}, {}", row->row_id, row->source,
                                *time_error_percent(*row), row->features.model, row->features.devices,
                                row->features.device, row->features.precision));
  return lines;
}

} // namespace

Accuracy accuracy_of(const std::vector<ValidatedRow>& rows, std::vector<FittedConstant> constants) {
  Accuracy accuracy;
  const Rows all = all_of(rows);
  accuracy.all = accuracy_of_set(all, all);
  accuracy.held_out = accuracy_of_set(all, held_out_of(rows));
  for (const auto& [source, own] : by_source(all)) accuracy.by_source[source] = summarise_rows(own);
  accuracy.groups = rank_groups(all);
  accuracy.constants = std::move(constants);
  accuracy.worst = worst_rows(all);
  return accuracy;
}

} // namespace foretrain::validation
