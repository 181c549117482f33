#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/program/program.h"
#include "core/spec/plan.h"
#include "executor/checkpoint/checkpoint.h"
#include "executor/communicators/device_library.h"
#include "executor/rendezvous/protocol.h"

namespace foretrain {

/// How the ranks of a run find each other.
struct Rendezvous {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string token;
  bool host_here = false; ///< this process listens for the others (rank 0 without a launcher that does)
};

enum class RecordOps { none, first, all }; ///< steps whose list of ops is written; first: the first measured one

struct RunSettings {
  int steps = 1;      ///< of the whole training, those before a checkpoint that it goes on from included
  int first_step = 0; ///< of this run; set by `prepare_run`
  int warmup = 1;     ///< steps that are not measured: the first ones of this run, at most all but one
  std::uint64_t seed = 1;
  double learning_rate = 1e-3;
  double clip_norm = 1;
  int restarts = 0;          ///< how often whoever starts the ranks has started them again
  std::filesystem::path out; ///< every rank appends its records, one JSON document a line
  RecordOps ops = RecordOps::first;
  CheckpointOptions checkpoint;
  std::filesystem::path resume;  ///< a checkpoint, or a folder of several: the newest
  std::filesystem::path weights; ///< folder with weights under Hugging Face's names, to start from
  std::filesystem::path tokens;  ///< file of tokens; empty: synthetic ones
  int token_bytes = 2;           ///< of a token of that file
  Json data = "synthetic";       ///< what tokens are, as a checkpoint says it; set by `prepare_run`
  bool probe = false;            ///< after the steps, collectives are timed over sizes
  Backend backend = Backend::gloo;
  int index_here = 0;  ///< among this machine's ranks: which of its devices
  std::string address; ///< of this machine, for the other ranks; empty: the one on the way to the rendezvous
  std::chrono::milliseconds timeout{60'000};
};

/// Steps before the first measured one.
[[nodiscard]] inline int warmup_of(const RunSettings& settings) {
  return std::min(settings.warmup, settings.steps - settings.first_step - 1);
}

/// A plan that the executor can run, with its Program.
struct Runnable {
  Plan plan;
  Program program;
};

/// Before anything starts: looks at the token file, finds the checkpoint to go on from and compares it with the plan,
/// and sets what follows from them. Errors: of `TokenFile::open`, `read_checkpoint`, `check_same_training`; no step is
/// left; the folder for checkpoints has some of another run.
[[nodiscard]] Result<void> prepare_run(const Plan& plan, RunSettings& settings);
/// After a failure, before `prepare_run`: goes on from the newest checkpoint of this run, or from where it began when
/// there is none.
void prepare_restart(RunSettings& settings);

/// What all ranks of this run have in common.
[[nodiscard]] Fingerprint fingerprint_of(const Runnable& runnable, const RunSettings& settings);

/// Runs one rank of a plan in this process, to the end. Prepares the process (allocator, scheduler), so once per
/// process. When another rank fails, this one says so, with the op that it was at, and ends the process with code 1.
[[nodiscard]] Result<void> run_rank(const Runnable& runnable, int rank, const Rendezvous& rendezvous,
                                    const RunSettings& settings);

/// Makes an empty file, or empties the one that is there. Error: not a file (a device, a folder), not writable.
[[nodiscard]] Result<void> start_file(const std::filesystem::path& path);

/// Appends one document as a line, in one write: several processes may do so at once.
[[nodiscard]] Result<void> append_line(const std::filesystem::path& path, const Json& document);

} // namespace foretrain
