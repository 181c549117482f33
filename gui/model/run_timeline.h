// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"

namespace foretrain::gui {

/// A bar of a run's timeline.
struct RunBar {
  double start = 0; ///< s
  double end = 0;
  int part = 0; ///< TimePart
  std::string name;
  std::string op; ///< the same in forecast and measurement of an op: pass, name, micro-batch and layer
};

/// How much later than promised an op was done.
struct RunLag {
  double at = 0;      ///< s: its measured end
  double seconds = 0; ///< negative: earlier
  std::string name;
};

/// One step as it was promised for a stage, or as a rank measured it.
struct RunLane {
  std::string title;
  bool measured = false;
  std::vector<std::vector<RunBar>> rows; ///< compute first, then what runs beside it; each in time order
  std::vector<RunLag> lags;              ///< of a measured lane, in time order: where it leaves its forecast
};

struct RunTimeline {
  std::vector<RunLane> lanes; ///< each stage's forecast above its ranks
  double end = 0;             ///< s
};

/// From the trace of `foretrain compare --trace`; `stage_of_rank` says what belongs together. Error: it is no such
/// trace.
[[nodiscard]] Result<RunTimeline> run_timeline(const Json& trace, const std::vector<int>& stage_of_rank);

/// A figure of a run, promised and measured: a line of `foretrain compare`.
struct RunTerm {
  std::string item; ///< "step_time", "time/tp", "op/forward ffn_up"
  int rank = -1;    ///< -1: of the run
  std::string unit; ///< "s", "B"
  double predicted = 0;
  double measured = 0;
};
/// Error: it is no such document.
[[nodiscard]] Result<std::vector<RunTerm>> run_terms(const Json& comparison);

} // namespace foretrain::gui
