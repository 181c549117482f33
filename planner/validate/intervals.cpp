#include "planner/validate/intervals.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

/// The shortest range of measured / predicted that holds four fifths of the logarithms: residuals have a long tail
/// towards slow runs, which a range with equal tails would pay for twice.
std::pair<double, double> shortest(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto held = static_cast<std::size_t>(std::ceil((kHigh - kLow) * static_cast<double>(values.size())));
  std::size_t best = 0;
  for (std::size_t i = 1; i + held <= values.size(); ++i)
    if (std::exp(values[i + held - 1]) - std::exp(values[i]) <
        std::exp(values[best + held - 1]) - std::exp(values[best]))
      best = i;
  return {values[best], values[best + held - 1]};
}

Interval interval_of(const Residuals& residuals) {
  Interval interval;
  const auto [low, high] = shortest(residuals.whole);
  interval.low = factor(low);
  interval.high = factor(high);
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

Pace pace_of_row(const ValidatedRow& row) {
  return pace_of(row.time[static_cast<std::size_t>(TimePart::host)].value / *row.predicted_seconds);
}

Intervals fit_intervals(const Rows& rows) {
  using Groups = std::map<std::string, std::vector<double>>;
  std::array<std::array<Groups, kPaces>, kEvidenceLevels> groups;
  std::array<Groups, kEvidenceLevels> of_level;
  for (const ValidatedRow* row : rows) {
    if (row->held_out || !time_error_percent(*row)) continue;
    const auto level = static_cast<std::size_t>(row->evidence);
    const std::string study = row->source + "|" + group_of(row->features);
    const double residual = std::log(*row->measured_seconds / *row->predicted_seconds);
    groups[level][static_cast<std::size_t>(pace_of_row(*row))][study].push_back(residual);
    of_level[level][study].push_back(residual);
  }
  Intervals intervals;
  for (std::size_t level = kEvidenceLevels; level-- > 0;)
    for (std::size_t pace = 0; pace < kPaces; ++pace) {
      const Residuals own = residuals_of(groups[level][pace]);
      const Residuals all = residuals_of(of_level[level]);
      if (own.whole.size() >= kLeastRows)
        intervals.time[level][pace] = interval_of(own);
      else if (all.whole.size() >= kLeastRows)
        intervals.time[level][pace] = interval_of(all);
      else if (level + 1 < kEvidenceLevels)
        intervals.time[level][pace] = intervals.time[level + 1][pace];
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
