#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace foretrain::cli {

/// A run as a batch job: one task per rank.
struct SlurmJob {
  std::filesystem::path program;      ///< foretrain-run, as the nodes see it
  std::vector<std::string> arguments; ///< of every rank
  std::filesystem::path folder;       ///< of records and logs, on a file system that all nodes share
  int ranks = 1;
  int per_node = 1;
  int max_restarts = 0;  ///< after a rank was lost, in the same job; after a machine was, by queuing the job again
  std::string time;      ///< limit, as sbatch takes it; empty: the partition's
  std::string partition; ///< empty: the default one
  std::vector<std::string> options; ///< further options of sbatch, as they stand
};

/// The script that sbatch takes. The token is made when the job starts, so that it stands in no file.
[[nodiscard]] std::string slurm_script(const SlurmJob& job);

/// Submits the script, waits for the job and returns its exit code; `stop` cancels it. `requeued`: a job that lost a
/// machine is queued again, and waited for on. Errors: sbatch is not there or refuses the job.
[[nodiscard]] Result<int> run_in_slurm(const std::filesystem::path& script, bool requeued,
                                       const std::atomic<bool>* stop);

} // namespace foretrain::cli
