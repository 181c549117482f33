// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "gui/model/environment.h"

namespace foretrain::gui {

/// How a layout is to be run.
struct RunRequest {
  std::string launcher = "local"; ///< "local", "slurm"
  int steps = 20;
  int warmup = 3;                  ///< of these, not measured
  std::string time;                ///< Slurm's limit, "00:30:00"; empty: the partition's
  std::string partition;           ///< empty: the default one
  std::vector<std::string> sbatch; ///< further options of sbatch, as they stand
  std::string checkpoint;          ///< folder; empty: none is made
  int checkpoint_every = 0;        ///< steps; 0: after the last one alone
  bool checkpoint_background = false;
  std::string resume;                ///< a checkpoint or a folder of them; empty: from the beginning
  int max_restarts = 0;              ///< after lost ranks
  std::string tokens;                ///< file; empty: synthetic ones
  std::string token_type = "uint16"; ///< or "uint32"
  std::string weights;               ///< folder under Hugging Face's names; empty: initial ones
};

/// Words behind `foretrain` that run the plan of a file and keep the run in a database.
[[nodiscard]] std::vector<std::string> run_arguments(const RunRequest& request, const std::string& plan,
                                                     const std::string& database, const std::string& folder);
/// What of a request cannot be, as a sentence; nothing where it can be tried.
[[nodiscard]] std::optional<std::string> problem_of(const RunRequest& request);
/// Words behind `foretrain-run` that write the weights of a request's checkpoints under Hugging Face's names.
[[nodiscard]] std::vector<std::string> export_arguments(const RunRequest& request, const std::string& folder);
/// The same of an export: no checkpoint is named, no folder to write into.
[[nodiscard]] std::optional<std::string> export_problem_of(const RunRequest& request, const std::string& folder);
/// Where the files of a run begun now go: beside the database, under a name of its own.
[[nodiscard]] std::filesystem::path new_run_folder(const std::filesystem::path& database);
/// Why this machine should not run so many ranks at once; nothing when it may. `prediction` may be null.
[[nodiscard]] std::optional<std::string> reason_against_local(const Layout& layout, const Prediction* prediction,
                                                              double memory_bytes);
/// Bytes of memory that this machine has; 0: unknown.
[[nodiscard]] double machine_memory();

/// How far a run is, from what its ranks have written.
struct RunState {
  int ranks = 0;                    ///< that have said something
  std::vector<double> step_seconds; ///< of the slowest rank, of the steps that every rank finished
  std::vector<double> loss;
  int warmup = 0;
  std::string failure;
};
/// Nothing yet is no error. Error: a file that is none of foretrain-run's.
[[nodiscard]] Result<RunState> run_state(const std::filesystem::path& folder);

} // namespace foretrain::gui
