#pragma once

#include <string>

#include "planner/cli/commands/commands.h"

namespace foretrain::cli {

/// What `validate` reads and writes beside its result; empty: nothing.
struct ValidateFiles {
  std::string plots;     ///< folder for drawings
  std::string page;      ///< accuracy page to write
  std::string check;     ///< accuracy page that must not be worse
  std::string intervals; ///< file of intervals to write
};
[[nodiscard]] int run_validate(const Context& context, const ValidateOptions& options, const ValidateFiles& files);

} // namespace foretrain::cli
