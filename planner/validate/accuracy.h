#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/validate/baselines.h"
#include "planner/validate/collectives.h"
#include "planner/validate/constants.h"
#include "planner/validate/errors.h"
#include "planner/validate/intervals.h"
#include "planner/validate/ranking.h"

namespace foretrain::validation {

/// Everything that the protocol asks of one set of rows.
struct AccuracyOf {
  ValidationSummary summary;
  SourceMeans sources;
  Baselines baselines;
  std::map<std::string, Coverage> time_coverage;
  std::map<std::string, Coverage> memory_coverage;
};

struct Accuracy {
  AccuracyOf all;
  AccuracyOf held_out;
  std::map<std::string, ValidationSummary> by_source;
  std::vector<RankedGroup> groups;
  std::vector<FittedConstant> constants;
  std::vector<std::string> worst; ///< the rows furthest off in time, as sentences
  std::vector<CollectiveErrors> collectives;
};
[[nodiscard]] Accuracy accuracy_of(const std::vector<ValidatedRow>& rows, std::vector<FittedConstant> constants);

/// docs/accuracy.md: figures between fixed headings; `remarks` stands before them as it is.
[[nodiscard]] std::string accuracy_page(const std::vector<ValidatedRow>& rows, const Accuracy& accuracy,
                                        const std::string& remarks);
/// What a page says before its first generated heading: written by people, kept when the page is made again.
[[nodiscard]] std::string remarks_of(const std::string& page);

/// Percentage points that a stored mean absolute error may be exceeded by before the check fails.
inline constexpr double kMargin = 1.0;
/// Figures of `page` (an accuracy page) that `accuracy` is worse than by more than the margin, as sentences. A source
/// with fewer than ten timed rows is not checked on its own.
[[nodiscard]] std::vector<std::string> worse_than(const std::string& page, const Accuracy& accuracy);

} // namespace foretrain::validation
