#include "planner/validate/ranking.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace foretrain::validation {
namespace {

constexpr std::size_t kLeastRows = 5;
constexpr double kTie = 0.01;
constexpr std::size_t kTop = 10;

/// Ranks from 0; values within 1 % of the first of their run share its mean rank.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] <= values[order[first]] * (1 + kTie)) ++end;
    const double shared = static_cast<double>(first + end - 1) / 2;
    for (std::size_t i = first; i < end; ++i) result[order[i]] = shared;
    first = end;
  }
  return result;
}

std::string name_of(const ValidatedRow& row) {
  const RowFeatures& f = row.features;
  return fmt::format("{} | {} | {} x {} | {} tokens | batch {} | {} | {} | {}", row.source, f.model, f.devices,
                     f.device, f.sequence_length, f.global_batch, f.precision, f.kernels, f.framework);
}

bool timed(const ValidatedRow& row) {
  return !row.out_of_memory && row.predicted_seconds && row.measured_seconds;
}

int false_fits(const Rows& group) {
  Rows fits;
  for (const ValidatedRow* row : group)
    if (row->predicted_seconds && row->verdict == Verdict::fits) fits.push_back(row);
  std::stable_sort(fits.begin(), fits.end(), [](const ValidatedRow* a, const ValidatedRow* b) {
    return *a->predicted_seconds < *b->predicted_seconds;
  });
  if (fits.size() > kTop) fits.resize(kTop);
  return static_cast<int>(
      std::count_if(fits.begin(), fits.end(), [](const ValidatedRow* row) { return row->out_of_memory; }));
}

RankedGroup ranked(const std::string& name, const Rows& group) {
  RankedGroup result;
  result.name = name;
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const ValidatedRow* row : group)
    if (timed(*row)) {
      predicted.push_back(*row->predicted_seconds);
      measured.push_back(*row->measured_seconds);
    }
  result.rows = static_cast<int>(measured.size());
  result.spearman = spearman(predicted, measured);
  const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
  const double best = *std::min_element(measured.begin(), measured.end());
  result.regret_percent = 100 * (measured[static_cast<std::size_t>(chosen)] / best - 1);
  result.false_fits_on_top = false_fits(group);
  return result;
}

} // namespace

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a);
  const std::vector<double> y = ranks(b);
  const double mean = (static_cast<double>(x.size()) - 1) / 2;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::vector<RankedGroup> rank_groups(const Rows& rows) {
  std::map<std::string, Rows> groups;
  for (const ValidatedRow* row : rows)
    if (!row->skipped) groups[name_of(*row)].push_back(row);
  std::vector<RankedGroup> result;
  for (const auto& [name, group] : groups) {
    const auto count = std::count_if(group.begin(), group.end(), [](const ValidatedRow* row) { return timed(*row); });
    if (static_cast<std::size_t>(count) >= kLeastRows) result.push_back(ranked(name, group));
  }
  return result;
}

RankingSummary summarise_groups(const std::vector<RankedGroup>& groups) {
  RankingSummary summary;
  summary.groups = static_cast<int>(groups.size());
  for (const RankedGroup& group : groups) {
    summary.mean_spearman += group.spearman / summary.groups;
    summary.mean_regret += group.regret_percent / summary.groups;
    summary.worst_spearman = std::min(summary.worst_spearman, group.spearman);
    summary.worst_regret = std::max(summary.worst_regret, group.regret_percent);
    summary.false_fits_on_top += group.false_fits_on_top;
  }
  return summary;
}

} // namespace foretrain::validation
