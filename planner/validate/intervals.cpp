#include "planner/validate/intervals.h"

#include <algorithm>
#include <cmath>

#include "core/spec/names.h"
#include "planner/validate/split.h"

namespace foretrain::validation {
namespace {

constexpr double kLow = 0.1;
constexpr double kHigh = 0.9;
constexpr std::size_t kLeastRows = 20;

/// Linear between order statistics.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * (static_cast<double>(values.size()) - 1);
  const auto below = static_cast<std::size_t>(at);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (at - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

/// Logarithms of measured / predicted, and the same less the group's median.
struct Residuals {
  std::vector<double> whole;
  std::vector<double> own;
};

Residuals residuals_of(const std::map<std::string, std::vector<double>>& groups) {
  Residuals residuals;
  for (const auto& [group, values] : groups) {
    residuals.whole.insert(residuals.whole.end(), values.begin(), values.end());
    if (values.size() < 3) continue;
    const double middle = quantile(values, 0.5);
    for (const double value : values) residuals.own.push_back(value - middle);
  }
  return residuals;
}

/// exp(x) to four digits: more are noise, and the file is read by people.
double factor(double logarithm) {
  constexpr double kDigits = 1e4;
  return std::round(std::exp(logarithm) * kDigits) / kDigits;
}

Interval interval_of(const Residuals& residuals) {
  Interval interval;
  interval.low = factor(quantile(residuals.whole, kLow));
  interval.high = factor(quantile(residuals.whole, kHigh));
  const std::vector<double>& own = residuals.own.size() < kLeastRows ? residuals.whole : residuals.own;
  interval.own_low = factor(quantile(own, kLow));
  interval.own_high = factor(quantile(own, kHigh));
  interval.rows = static_cast<int>(residuals.whole.size());
  return interval;
}

Residuals memory_residuals(const Rows& rows) {
  std::map<std::string, std::vector<double>> groups;
  for (const ValidatedRow* row : rows)
    if (!row->held_out && memory_error_percent(*row))
      groups[group_of(row->features)].push_back(std::log(*row->measured_bytes / *row->predicted_bytes));
  return residuals_of(groups);
}

void count(Coverage& coverage, double measured, double predicted, double low, double high) {
  ++coverage.rows;
  if (measured >= low && measured <= high) coverage.covered += 1;
  coverage.mean_width += (high - low) / predicted;
}

void finish(std::map<std::string, Coverage>& all) {
  for (auto& [level, coverage] : all) {
    coverage.covered /= coverage.rows;
    coverage.mean_width /= coverage.rows;
  }
}

} // namespace

Intervals fit_intervals(const Rows& rows) {
  std::array<std::map<std::string, std::vector<double>>, kEvidenceLevels> groups;
  for (const ValidatedRow* row : rows)
    if (!row->held_out && time_error_percent(*row))
      groups[static_cast<std::size_t>(row->evidence)][row->source + "|" + group_of(row->features)].push_back(
          std::log(*row->measured_seconds / *row->predicted_seconds));
  Intervals intervals;
  for (std::size_t level = kEvidenceLevels; level-- > 0;) {
    const Residuals residuals = residuals_of(groups[level]);
    if (residuals.whole.size() >= kLeastRows)
      intervals.time[level] = interval_of(residuals);
    else if (level + 1 < kEvidenceLevels)
      intervals.time[level] = intervals.time[level + 1];
  }
  const Residuals memory = memory_residuals(rows);
  if (memory.whole.size() >= kLeastRows) intervals.memory = interval_of(memory);
  return intervals;
}

std::map<std::string, Coverage> coverage_of_time(const Rows& rows) {
  std::map<std::string, Coverage> result;
  for (const ValidatedRow* row : rows) {
    if (!time_error_percent(*row)) continue;
    for (const std::string& level : {std::string(id_of(row->evidence)), std::string("all")})
      count(result[level], *row->measured_seconds, *row->predicted_seconds, row->time_interval[0],
            row->time_interval[1]);
  }
  finish(result);
  return result;
}

std::map<std::string, Coverage> coverage_of_memory(const Rows& rows) {
  std::map<std::string, Coverage> result;
  for (const ValidatedRow* row : rows) {
    if (!memory_error_percent(*row)) continue;
    for (const std::string& kind : {row->measured_kind, std::string("all")})
      count(result[kind], *row->measured_bytes, *row->predicted_bytes, *row->predicted_bytes * row->memory_interval[0],
            *row->predicted_bytes * row->memory_interval[1]);
  }
  finish(result);
  return result;
}

} // namespace foretrain::validation
