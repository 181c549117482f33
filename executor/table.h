#pragma once

#include <string>
#include <vector>

#include "core/spec/plan.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// One axis of what plans may ask for, with the choices that the executor runs and those that it refuses.
struct RunnableAxis {
  std::string name;
  std::vector<std::string> runs;
  std::vector<std::string> refused;
};

/// Every choice of every axis, put into a small plan and given to `check_runnable`.
[[nodiscard]] std::vector<RunnableAxis> runnable_axes(const Semantics& semantics);
/// The same as a Markdown table; docs/executor.md has it.
[[nodiscard]] std::string runnable_table(const Semantics& semantics);

} // namespace foretrain
