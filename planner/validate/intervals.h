#pragma once

#include <map>

#include "core/spec/intervals.h"
#include "planner/validate/row.h"

/// 80 % intervals from residuals, and how well they cover.
namespace foretrain::validation {

/// From rows that are not held out, per evidence level and pace: the shortest range that holds 80 % of measured /
/// predicted, and 10 and 90 % of what is left within a group (a study's own jobs on one machine) once the group's
/// median is taken off. A pace without enough rows takes its level's figures, a level without enough the next worse
/// level's.
[[nodiscard]] Intervals fit_intervals(const Rows& rows);

struct Coverage {
  int rows = 0;
  double covered = 0;    ///< share of measured values inside
  double mean_width = 0; ///< (high - low) / predicted
};
/// By evidence id, and "all".
[[nodiscard]] std::map<std::string, Coverage> coverage_of_time(const Rows& rows);
/// Of memory, by kind of figure, and "all".
[[nodiscard]] std::map<std::string, Coverage> coverage_of_memory(const Rows& rows);

} // namespace foretrain::validation
