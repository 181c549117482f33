#pragma once

#include <string>

#include "planner/cli/inputs.h"

namespace foretrain::cli {

/// Simulates a legal plan with its timeline and writes it as a Chrome trace, which Perfetto opens.
[[nodiscard]] Result<void> write_trace(const Context& context, const LoadedPlan& loaded, Engine engine,
                                       const std::string& file);

} // namespace foretrain::cli
