#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/validate/row.h"

namespace foretrain::validation {

/// Of signed errors in percent: (predicted - measured) / measured.
struct ErrorSummary {
  int count = 0;
  double mean_absolute = 0;
  double mean_signed = 0;
  double p90_absolute = 0; ///< nine in ten are at most this far off
};
[[nodiscard]] ErrorSummary summarise_errors(std::vector<double> errors);

struct ValidationSummary {
  int rows = 0;
  int eligible = 0;                       ///< by the protocol
  int predicted = 0;                      ///< of these: neither skipped nor refused by a rule
  std::map<std::string, int> unpredicted; ///< why not: reason with its detail, or the rule -> eligible rows
  int compared = 0;
  int unsteady = 0; ///< of these, of runs whose steps differ much
  ErrorSummary time;
  ErrorSummary memory;
  std::map<std::string, ErrorSummary> memory_by_kind; ///< "allocated", "reserved", "unstated" (as measured)
  int ran = 0;                                        ///< measured, of those that say so: in time or bytes
  int ran_out_of_memory = 0;                          ///< measured
  int foreseen = 0;                                   ///< of these, predicted so
  int wrongly_out_of_memory = 0;                      ///< ran, predicted not to fit
  int open_out_of_memory = 0; ///< the same where the source leaves open what memory hangs on: says nothing
  int called_illegal = 0;     ///< ran, refused by a rule
  std::map<std::string, int> skipped;
  std::map<std::string, int> refused; ///< rule -> runs that ran
};
[[nodiscard]] ValidationSummary summarise_rows(const Rows& rows);

/// One source weighs as much as another: means over sources of their means. A third of the rows are one source's.
struct SourceMeans {
  int sources = 0;
  double mean_absolute = 0;
  double mean_signed = 0;
};
[[nodiscard]] SourceMeans over_sources(const Rows& rows);

[[nodiscard]] Rows all_of(const std::vector<ValidatedRow>& rows);
[[nodiscard]] Rows held_out_of(const std::vector<ValidatedRow>& rows);
[[nodiscard]] std::map<std::string, Rows> by_source(const Rows& rows);

} // namespace foretrain::validation
