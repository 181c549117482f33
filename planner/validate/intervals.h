#pragma once

#include <map>

#include "core/spec/intervals.h"
#include "planner/validate/row.h"

/// 80 % intervals from residuals, and how well they cover.
namespace foretrain::validation {

/// Quantiles of measured / predicted per evidence level over rows that are not held out: 10 and 90 % of the whole, and of
/// what is left within a group (a study's own jobs on one machine) once the group's median is taken off. A level
/// without enough rows takes the next worse level's figures.
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
