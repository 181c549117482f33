#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/validate/errors.h"
#include "planner/validate/row.h"

/// What a user could do without a planner. A forecast that does no better is not worth its trouble.
namespace foretrain::validation {

/// Step time = model FLOP / (peak · the device's utilisation): one figure per device, the median over its rows.
/// Nearest: the utilisation of the nearest measured row of another group on the same device.
struct Baselines {
  std::map<std::string, double> utilisation; ///< by device, median over rows that are not held out
  ErrorSummary by_utilisation;
  ErrorSummary by_nearest;
};

/// Over the rows of `judged`, knowing only rows of `known` that are not held out. The nearest row is of another group
/// than the one judged, so that both are guesses about something unseen.
[[nodiscard]] Baselines baselines(const Rows& known, const Rows& judged);

} // namespace foretrain::validation
