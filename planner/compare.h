#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/spec/prediction.h"
#include "simulator/simulation.h"

namespace foretrain {

/// One figure, promised and measured.
struct Comparison {
  std::string item;        ///< "step_time", "peak_allocated", "time/tp", "op/forward ffn_up"
  std::optional<int> rank; ///< absent: of the run
  std::string unit;        ///< "s", "B"
  double predicted = 0;
  double measured = 0;
  /// (predicted - measured) / measured; absent when nothing was measured.
  [[nodiscard]] std::optional<double> error_percent() const;
};

/// An op of a rank: its time as predicted undisturbed, and as measured (median over the steps).
struct ComparedOp {
  int rank = 0;
  std::string kind; ///< "forward ffn_up"
  std::string part; ///< id of a TimePart
  double predicted = 0;
  double measured = 0;
};

/// The most that the allocator held within one slot, or within one op of the step's end.
struct ComparedPeak {
  int rank = 0;
  std::string name; ///< of a `PlannedPeak`
  std::int64_t predicted = 0;
  std::int64_t measured = 0;
};

/// What is known of a run.
struct RunFacts {
  std::vector<double> step_seconds;                    ///< of the measured steps
  std::vector<std::vector<double>> rank_seconds;       ///< by rank, of the measured steps
  std::vector<std::optional<std::int64_t>> peak_bytes; ///< by rank
  std::vector<int> stage;                              ///< by rank
  std::vector<ComparedOp> ops;
  std::vector<ComparedPeak> peaks;
  std::vector<Comparison> host; ///< each rank's memory of the host: "host/optimizer", "host/checkpoint_copy"
};

/// The step, each rank's memory (as a whole, on the host and by slot), each rank's time by axis, and each rank's time
/// by kind of op. `simulation` gives the time by axis with its waiting; without it those rows are left out.
[[nodiscard]] std::vector<Comparison> compare(const RunFacts& run, const Prediction& prediction,
                                              const Simulation* simulation);

/// Median; 0 of nothing.
[[nodiscard]] double median_of(std::vector<double> values);

} // namespace foretrain
