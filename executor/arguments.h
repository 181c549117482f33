#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/spec/presets.h"
#include "executor/run.h"

namespace CLI {
class App;
}

namespace foretrain {

inline constexpr int kDone = 0;
inline constexpr int kWrongInput = 1;
inline constexpr int kRefused = 2;
inline constexpr int kInternal = 3;
inline constexpr int kCancelled = 130;

/// What foretrain-run is asked for. A rank's program (foretrain-rank) is given the same words.
struct Arguments {
  std::string plan;
  std::string launcher = "local";
  std::string data;
  std::string ops = "first";
  std::string backend = "gloo";
  std::string rendezvous; ///< of ranks that the local launcher starts: where it listens
  std::string logs;
  std::string describe; ///< file
  std::string out = "run.json";
  std::string checkpoint; ///< folder
  std::string resume;     ///< folder
  std::string weights;    ///< folder
  std::string tokens;     ///< file
  std::string token_type = "uint16";
  std::string export_to; ///< folder
  int max_restarts = 0;
  int rank = -1; ///< of ranks that the local launcher starts
  double timeout_s = 60;
  bool json = false;
  bool check = false;
  RunSettings settings;
};

void add_options(CLI::App& app, Arguments& arguments);

/// Options that only make sense together; sets what `settings` has of them.
[[nodiscard]] Result<void> settle_options(Arguments& arguments);

/// The presets: as told, beside an installation, or in the source tree that this program was built from.
[[nodiscard]] DataFolder data_folder(const std::string& told);

/// A plan that is ready to run, or the exit code; what is wrong has been printed then.
struct Prepared {
  std::optional<Runnable> runnable;
  int code = kDone;
};
/// Reads the plan under the executor's own semantics, checks it and its Program, and with `--check` prints what runs.
[[nodiscard]] Prepared prepare_plan(const Arguments& arguments);

/// Prints an error; its exit code.
int report(const Error& error);

/// main of both programs: reads the words, runs, turns exceptions of libraries into exit codes.
[[nodiscard]] int run_program(int count, char** words, const std::function<int(Arguments& arguments)>& run);

} // namespace foretrain
