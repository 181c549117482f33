#pragma once

#include <string>
#include <vector>

#include "core/spec/measurement.h"
#include "core/spec/prediction.h"
#include "planner/cli/context.h"
#include "planner/validate/row.h"

namespace foretrain::cli {

/// Predicts every row that says enough. Errors: the data folder does not read. Stops early when `context.stop` is set:
/// rows that were not reached are left out.
[[nodiscard]] Result<std::vector<validation::ValidatedRow>> validate_rows(const Context& context,
                                                                          const std::string& file,
                                                                          const std::vector<Measurement>& rows,
                                                                          Engine engine, int jobs);

} // namespace foretrain::cli
