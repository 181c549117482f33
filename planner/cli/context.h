#pragma once

#include <atomic>
#include <filesystem>
#include <string>

#include "core/base/result.h"
#include "core/spec/presets.h"

/// The program `foretrain`: what its commands share.
namespace foretrain::cli {

/// Exit codes, a contract with scripts.
enum ExitCode { kDone = 0, kBadInput = 1, kNothingFits = 2, kInternal = 3, kInterrupted = 130 };

/// What a command needs from outside. `main` makes it; nothing is read from the environment after that.
struct Context {
  DataFolder data;
  std::filesystem::path calibration; ///< file of --calibration; empty: the user's, else a preset's
  std::filesystem::path user_data;   ///< the user's folder: calibrations of this machine; empty when there is none
  std::filesystem::path worker;      ///< foretrain-sim-worker; empty when it is not there
  int rank = 0;                      ///< of this process, when a cluster's launcher started it
  int restarts = 0;                  ///< how often it has started the ranks again
  int width = 80;                    ///< of tables, in columns
  bool color = false;                ///< on stdout
  bool progress = false;             ///< stderr is a terminal
  const std::atomic<bool>* stop = nullptr; ///< set by Ctrl-C
};

/// Writes to stdout. Error: a full disk, a closed pipe.
[[nodiscard]] Result<void> print(const std::string& text);
/// "foretrain: …" on stderr; returns the exit code of the error's kind.
[[nodiscard]] int complain(const Error& error);
/// Prints, and complains if that fails; else `code`.
[[nodiscard]] int print_and(const std::string& text, int code);
/// Says something beside the result: a line on stderr.
void remark(const std::string& text);

[[nodiscard]] int jobs_or_cores(int jobs); ///< 0: one per core
/// That `--jobs` can be: 0 for all cores, at most 1024.
[[nodiscard]] Result<void> check_jobs(int jobs);

/// The data folder: `given`, else data/ of the source tree the program was built in, else share/foretrain beside bin/.
[[nodiscard]] Result<DataFolder> find_data(const std::string& given, const std::filesystem::path& program);
[[nodiscard]] std::filesystem::path program_path(); ///< of the running program
/// $XDG_DATA_HOME/foretrain, else ~/.local/share/foretrain; empty when the environment names neither.
[[nodiscard]] std::filesystem::path user_data_folder();
[[nodiscard]] int restarts_in_environment(); ///< as torchrun or a batch script says; 0 when none does
[[nodiscard]] int rank_in_environment();     ///< as torchrun, mpirun, PMI or srun set it; 0 when none did
[[nodiscard]] int terminal_width();          ///< of stdout; when it is no terminal, $COLUMNS, else 80
[[nodiscard]] std::string_view version();

} // namespace foretrain::cli
