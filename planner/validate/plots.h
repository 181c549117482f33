#pragma once

#include <string>
#include <vector>

#include "planner/validate/ranking.h"
#include "planner/validate/row.h"

namespace foretrain::validation {

/// A drawing: a name for its file and the SVG.
struct Plot {
  std::string name;
  std::string svg;
};

/// Predicted against measured step times, residuals by source, framework, device, precision and each degree, and the
/// regret of each ranked group. Equal rows give equal drawings.
[[nodiscard]] std::vector<Plot> plots_of(const Rows& rows, const std::vector<RankedGroup>& groups);

} // namespace foretrain::validation
