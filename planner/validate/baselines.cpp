#include "planner/validate/baselines.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/validate/split.h"

namespace foretrain::validation {
namespace {

bool usable(const ValidatedRow& row) {
  return !row.skipped && !row.out_of_memory && row.measured_seconds && row.features.flop > 0 && row.features.peak > 0;
}

double utilisation(const ValidatedRow& row) {
  return row.features.flop / (row.features.peak * *row.measured_seconds);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double apart(double a, double b) {
  return a > 0 && b > 0 ? std::abs(std::log2(a / b)) : 0;
}

/// Factors of two that two runs differ by, summed over what a user would look at; another framework or precision
/// counts as two of them.
double distance(const RowFeatures& a, const RowFeatures& b) {
  double sum = apart(a.flop, b.flop) + apart(a.devices, b.devices) + apart(a.sequence_length, b.sequence_length) +
               apart(a.tp, b.tp) + apart(a.pp, b.pp) + apart(a.cp, b.cp) + apart(a.ep, b.ep) +
               apart(a.micro_batch, b.micro_batch);
  constexpr double kAnother = 2;
  if (a.framework != b.framework) sum += kAnother;
  if (a.precision != b.precision) sum += kAnother;
  if (a.recompute != b.recompute) sum += kAnother;
  return sum;
}

double error_percent(const ValidatedRow& row, double used) {
  const double predicted = row.features.flop / (row.features.peak * used);
  return 100 * (predicted / *row.measured_seconds - 1);
}

} // namespace

Baselines baselines(const Rows& known, const Rows& judged) {
  Baselines result;
  std::map<std::string, std::vector<double>> by_device;
  std::map<std::string, std::vector<std::pair<std::string, const ValidatedRow*>>> rows;
  for (const ValidatedRow* row : known) {
    if (!usable(*row) || row->held_out) continue;
    by_device[row->features.device].push_back(utilisation(*row));
    rows[row->features.device].emplace_back(group_of(row->features), row);
  }
  for (auto& [device, values] : by_device) result.utilisation[device] = median(std::move(values));
  std::vector<double> one;
  std::vector<double> nearest;
  for (const ValidatedRow* row : judged) {
    if (!usable(*row) || !row->predicted_seconds) continue;
    const auto own = result.utilisation.find(row->features.device);
    if (own == result.utilisation.end()) continue;
    one.push_back(error_percent(*row, own->second));
    const std::string group = group_of(row->features);
    const ValidatedRow* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [other, candidate] : rows[row->features.device]) {
      if (other == group) continue;
      const double far = distance(row->features, candidate->features);
      if (far < least) {
        least = far;
        best = candidate;
      }
    }
    if (best) nearest.push_back(error_percent(*row, utilisation(*best)));
  }
  result.by_utilisation = summarise_errors(std::move(one));
  result.by_nearest = summarise_errors(std::move(nearest));
  return result;
}

} // namespace foretrain::validation
