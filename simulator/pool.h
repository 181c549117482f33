#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <vector>

#include <sys/types.h>

#include "core/base/result.h"
#include "simulator/simgrid/protocol.h"

namespace foretrain {

struct PoolOptions {
  std::filesystem::path worker; ///< the foretrain-sim-worker program
  int workers = 1;
  double limit_seconds = 600; ///< a simulation that takes longer costs its candidate
};

/// Worker processes for simulations. One thread uses it; all processes are gone when it is.
class WorkerPool {
public:
  explicit WorkerPool(PoolOptions options) : options_(std::move(options)) {}
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Simulates all requests; the results are in their order and the same for any number of workers. A worker that dies
  /// costs the candidate it had. `done(index)` is called as results come. When `stop` becomes true, all workers are
  /// killed and what is missing is `Error::Kind::cancelled`.
  [[nodiscard]] std::vector<Result<Simulation>> run(const std::vector<SimulationRequest>& requests,
                                                    const std::atomic<bool>* stop = nullptr,
                                                    const std::function<void(std::size_t)>& done = {});

private:
  struct Worker {
    pid_t pid = -1;
    int socket = -1;
    std::ptrdiff_t request = -1; ///< -1: idle
    double deadline = 0;
    std::string outgoing; ///< not yet written
    std::string incoming;
  };

  [[nodiscard]] Result<Worker> start() const;
  static void end(Worker& worker);

  PoolOptions options_;
  std::vector<Worker> workers_;
};

/// The worker beside the running program.
[[nodiscard]] std::filesystem::path worker_beside_program();

} // namespace foretrain
