#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/cli/context.h"

/// One function per command: options in, exit code out. Everything they print for people they also give as JSON.
namespace foretrain::cli {

struct PlanOptions {
  std::string study; ///< a file; empty: the study comes from the flags
  std::string model;
  std::string cluster;
  std::optional<int> gpus;
  std::optional<int> sequence_length;
  std::optional<std::int64_t> global_batch;
  std::string semantics;
  std::string precision;
  std::optional<int> lora;
  std::string overlap_tp; ///< no, yes, both; empty: as the study says
  std::string objective;
  std::string where;
  int top = 20;
  std::string engine;
  std::string search = "automatic"; ///< how much is evaluated
  std::int64_t keep = 100'000;
  int jobs = 0; ///< 0: one per core
  std::string database;
  bool json = false;
  bool csv = false;
};
[[nodiscard]] int run_plan(const Context& context, const PlanOptions& options);

struct PredictOptions {
  std::string plan;
  std::string engine = "replay";
  bool json = false;
  std::string trace; ///< file to write
};
[[nodiscard]] int run_predict(const Context& context, const PredictOptions& options);

struct ExplainOptions {
  std::string plan;
  std::string against; ///< a plan; empty: the best of a search
  std::string engine = "replay";
  int jobs = 0;
  bool json = false;
};
[[nodiscard]] int run_explain(const Context& context, const ExplainOptions& options);

struct ProgramOptions {
  std::string plan;
  std::optional<int> role;
  bool json = false;
};
[[nodiscard]] int run_program(const Context& context, const ProgramOptions& options);

struct ValidateOptions {
  std::vector<std::string> files;
  std::string engine = "replay";
  int jobs = 0;
  bool json = false;
};
[[nodiscard]] int run_validate(const Context& context, const ValidateOptions& options);

struct RunOptions {
  std::string plan;
  std::string launcher = "local";
  std::string backend = "gloo";
  int steps = 10;
  int warmup = 2;
  std::uint64_t seed = 1;
  double learning_rate = 1e-3;
  double clip_norm = 1;
  double timeout_s = 60;
  std::string checkpoint;             ///< folder; empty: none are made
  int checkpoint_every = 0;           ///< steps; 0: only after the last
  bool checkpoint_background = false; ///< written while training goes on
  std::string resume;                 ///< a checkpoint, or the folder of several
  int max_restarts = 0;
  std::string weights; ///< folder of safetensors files under Hugging Face's names
  std::string tokens;  ///< file; empty: synthetic ones
  std::string token_type = "uint16";
  std::string out;                 ///< folder; empty: beside the database
  bool dry_run = false;            ///< slurm: print the script
  std::string time;                ///< slurm: limit, as sbatch takes it
  std::string partition;           ///< slurm
  std::vector<std::string> sbatch; ///< slurm: further options of sbatch, as they stand
  std::string database = "foretrain.db";
  bool json = false;
};
/// Executes a plan with foretrain-run and keeps what was measured beside what was predicted.
[[nodiscard]] int run_run(const Context& context, const RunOptions& options);

struct CompareOptions {
  std::int64_t run = 0;
  std::string database = "foretrain.db";
  std::string trace; ///< file to write
  bool ops = false;  ///< rows of ops in the table too
  bool json = false;
};
[[nodiscard]] int run_compare(const Context& context, const CompareOptions& options);

struct DetectOptions {
  int ranks = 0;   ///< that the machine is shared by; 0: one per core
  std::string out; ///< file to write; empty: stdout
  bool json = false;
};
/// The cluster that this machine is, as a file that plans take.
[[nodiscard]] int run_detect(const Context& context, const DetectOptions& options);

struct CalibrateOptions {
  std::string cluster = "cpu-host";  ///< whose device is measured, with as many ranks at once as it has
  std::string out;                   ///< file; empty: the user's calibrations
  std::string work;                  ///< folder of the probes, from which an interrupted calibration goes on
  std::string backend = "gloo";      ///< of foretrain-run: with nccl the device is this machine's GPU
  int steps = 8;                     ///< of each probe; the first two are not measured
  std::string runs;                  ///< database file: learn from its runs instead of measuring
  std::vector<std::int64_t> of_runs; ///< numbers of these; empty: all that ended well
  bool quick = false;
  bool json = false;
};
/// Measures this machine with the executor's own ops, all ranks busy.
[[nodiscard]] int run_calibrate(const Context& context, const CalibrateOptions& options);
/// With `runs`: fits what they show of the device, and says what their steps were predicted to take before and after.
[[nodiscard]] int calibrate_from_runs(const Context& context, const CalibrateOptions& options);

struct PresetsOptions {
  std::string kind;
  std::string name;
  bool json = false;
};
[[nodiscard]] int run_presets(const Context& context, const PresetsOptions& options);

/// The JSON Schema of a kind of file; without a name, their list.
[[nodiscard]] int run_schema(const std::string& name);

struct DbOptions {
  std::string action;            ///< list, show, best, pareto, misses, runs, import
  std::vector<std::string> runs; ///< import: folders that foretrain-run wrote
  std::string file;
  std::optional<std::int64_t> study; ///< absent: the newest
  std::string objective;
  int top = 20;
  bool json = false;
};
/// Keeps runs that were made elsewhere; one that the database has already is left out.
[[nodiscard]] int import_runs(const Context& context, const DbOptions& options);
[[nodiscard]] int run_db(const Context& context, const DbOptions& options);

} // namespace foretrain::cli
