#include "planner/validate/terms.h"

#include <algorithm>
#include <cmath>

namespace foretrain::validation {
namespace {

constexpr std::size_t kLeastRows = 5;
constexpr double kFlat = 1e-4; // a share that varies by less is constant

struct Point {
  double share = 0;
  double error = 0;
};

double share_of(const ValidatedRow& row, std::size_t part) {
  return row.time[part].value / *row.predicted_seconds;
}

void fit(Term& term, const std::vector<Point>& points) {
  if (points.size() < kLeastRows) return;
  const auto count = static_cast<double>(points.size());
  double share = 0;
  double error = 0;
  for (const Point& p : points) {
    share += p.share / count;
    error += p.error / count;
  }
  double ss = 0;
  double ee = 0;
  double se = 0;
  for (const Point& p : points) {
    ss += (p.share - share) * (p.share - share);
    ee += (p.error - error) * (p.error - error);
    se += (p.share - share) * (p.error - error);
  }
  if (std::sqrt(ss / count) < kFlat || !(ee > 0)) return;
  term.slope = se / ss;
  term.correlation = se / std::sqrt(ss * ee);
}

} // namespace

std::vector<Term> terms_of(const ValidatedRow& row, const Rows& rows) {
  std::vector<Term> terms;
  for (std::size_t part = 0; part < row.time.size(); ++part) {
    Term term;
    term.part = static_cast<TimePart>(part);
    term.seconds = row.time[part].value;
    term.share = share_of(row, part);
    std::vector<Point> points;
    for (const ValidatedRow* other : rows)
      if (time_error_percent(*other) && *other->predicted_seconds > 0)
        points.push_back({share_of(*other, part), *other->measured_seconds / *other->predicted_seconds - 1});
    fit(term, points);
    if (term.seconds > 0) terms.push_back(term);
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& a, const Term& b) { return std::abs(a.correlation) > std::abs(b.correlation); });
  return terms;
}

} // namespace foretrain::validation
