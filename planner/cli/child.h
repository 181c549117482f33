#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace foretrain::cli {

struct ChildOptions {
  bool quiet = false;                      ///< its stdout goes to our stderr
  const std::atomic<bool>* stop = nullptr; ///< once set, the child is asked to end (SIGTERM)
};

/// Runs a program to its end. The child does not outlive us. Its exit code; 1000 + signal when one ended it.
/// Error: it cannot be started.
[[nodiscard]] Result<int> run_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                                    const ChildOptions& options);

/// `foretrain-run` beside the running program. Error: it is not there.
[[nodiscard]] Result<std::filesystem::path> executor_program();

} // namespace foretrain::cli
