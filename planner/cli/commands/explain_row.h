#pragma once

#include <string>

#include "planner/cli/commands/commands.h"

namespace foretrain::cli {

/// "rows.csv:ROW_ID": a measured row instead of a plan.
[[nodiscard]] bool names_a_row(const std::string& against);

/// Where the predicted time of a measured row goes, and which term its residual points to.
[[nodiscard]] int explain_row(const Context& context, const ExplainOptions& options);

} // namespace foretrain::cli
