#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"

/// What foretrain-run writes, read back: planner and executor meet in files.
namespace foretrain {

struct OpTime {
  int samples = 0;
  double median = 0; ///< seconds
  double p10 = 0;
  double p90 = 0;
  double mean = 0; ///< without the slowest and the fastest tenth; 0: not written
  /// What to add up over ops.
  [[nodiscard]] double typical() const { return mean > 0 ? mean : median; }
};

/// One op of a step that was recorded in full.
struct TracedOp {
  double start = 0; ///< seconds since the step began on this rank
  double end = 0;
};

struct MeasuredRank {
  std::vector<double> step_seconds;  ///< of all steps, warm-up included
  std::int64_t peak_bytes = -1;      ///< highest over all steps; −1: not counted
  std::int64_t host_peak_bytes = -1; ///< the same of an optimizer on the host; −1: none is there
  std::int64_t copied_bytes = -1;    ///< most that a checkpoint in the background copied; −1: none was made
  std::vector<OpTime> ops;     ///< by the op's number in the step; empty when the rank was ended before it could say
  std::vector<TracedOp> trace; ///< of the first step that was recorded in full
  std::vector<std::int64_t> peaks; ///< of the allocator within each instruction of that step; empty: not counted
  double trace_began = 0;          ///< seconds since 1970
  std::string error;               ///< what it said when it gave up
};

/// One size of a collective, timed by itself.
struct ProbedCollective {
  std::string kind; ///< "all-reduce"
  int ranks = 0;
  double bytes = 0; ///< as Op::bytes counts them
  double seconds = 0;
};

/// A checkpoint, all ranks together.
struct MeasuredCheckpoint {
  int steps = 0;            ///< done when it was made
  std::int64_t bytes = 0;   ///< of all shards
  double stall_seconds = 0; ///< that the slowest rank's training waited
  double write_seconds = 0; ///< that the slowest rank wrote
  bool background = false;
};

struct MeasuredRun {
  Json environment;   ///< hardware and versions
  int first_step = 0; ///< of the training: what is listed by step begins with it
  int warmup = 0;     ///< steps that are not measured
  int restarts = 0;   ///< after each the steps since the checkpoint were done again; the later ones count
  std::vector<MeasuredCheckpoint> checkpoints;
  std::vector<MeasuredRank> ranks;
  std::vector<double> step_seconds; ///< of the slowest rank, of the steps that every rank finished
  std::vector<double> loss;         ///< of the global batch
  std::string failure;              ///< what the launcher said; without one, what the first rank to give up said
  std::vector<ProbedCollective> probes;

  /// Median over the measured steps; 0 when there are none.
  [[nodiscard]] double step_time() const;
  [[nodiscard]] double step_time(int rank) const;
};

/// Reads a run's file, complete or not. A last line that is cut off (a full disk, a kill) is left out.
/// Errors: no such file, a line that is not what foretrain-run writes.
[[nodiscard]] Result<MeasuredRun> read_run(const std::filesystem::path& file);

} // namespace foretrain
