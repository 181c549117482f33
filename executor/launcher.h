#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace foretrain {

/// Processes of one machine, one per rank.
struct LocalLaunch {
  std::filesystem::path program;      ///< that each rank executes
  std::vector<std::string> arguments; ///< for every rank; `--rank N` is added
  int world = 1;
  int threads = 1;                        ///< of arithmetic, per rank
  std::chrono::milliseconds grace{5'000}; ///< once a rank has failed: how long the others may take to say so themselves
};

/// Starts the ranks (fork and exec) and waits for all. When one fails the others are ended, and the error names the
/// rank that failed first; `watch` is called every few hundredths of a second meanwhile. SIGINT and SIGTERM end the
/// ranks and give a cancelled error. Blocks those signals and SIGCHLD in the calling thread.
[[nodiscard]] Result<void> launch_local(const LocalLaunch& launch, const std::function<void()>& watch);

} // namespace foretrain
