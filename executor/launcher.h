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
  int threads = 1;            ///< of arithmetic, per rank
  std::filesystem::path logs; ///< folder for what each rank prints, as rank-N.log; empty: where this process prints
  std::vector<std::string> environment;   ///< NAME=value, added to that of this process
  std::chrono::milliseconds grace{3'000}; ///< once a rank has failed: how long the others may take to say so themselves
};

/// What the launcher does meanwhile, in the thread that called it.
struct LaunchHooks {
  std::function<void()> started;                      ///< all ranks have been started: threads may be now
  std::function<void()> watch;                        ///< every few hundredths of a second
  std::function<void(const std::string& who)> failed; ///< a rank's process ended badly: "rank 1: …"
  std::function<std::string()> given_up;              ///< why the ranks give the run up though all processes live
};

/// Starts the ranks (fork and exec) and waits for all. When one fails the others are ended, and the error names the
/// rank that failed first: one that a signal ended or stopped before those that noticed. SIGINT and SIGTERM end the
/// ranks and give a cancelled error. Blocks those signals and SIGCHLD in the calling thread. No rank is left.
[[nodiscard]] Result<void> launch_local(const LocalLaunch& launch, const LaunchHooks& hooks);

} // namespace foretrain
