// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/spec/calibration.h"
#include "gui/model/environment.h"
#include "gui/model/rows.h"

namespace foretrain::gui {

/// A run of the session file beside its prediction.
struct MeasuredRun {
  std::int64_t id = 0; ///< in the file
  std::string title;
  std::string created_at;
  std::string status;
  std::string message; ///< why it failed
  std::string device;
  int steps = 0;
  std::vector<int> stage_of_rank;
  std::optional<double> predicted_seconds;
  std::optional<double> measured_seconds; ///< median over the steps
  std::optional<double> predicted_bytes;  ///< allocated, of the fullest stage
  std::optional<double> measured_bytes;   ///< peak allocated, of the fullest rank
};

/// Newest first, at most 500. Errors: those of the store.
[[nodiscard]] Result<std::vector<MeasuredRun>> read_runs(const Environment& environment,
                                                         const std::filesystem::path& path);

/// How a layout of the study would rank with another calibration of its device.
struct RankChange {
  int row = 0;  ///< rank before, from 0
  int rank = 0; ///< after, from 0
  double before_s = 0;
  double after_s = 0;
};
/// The first `most` rows, each predicted op by op with both calibrations, in the order after. Error: as `predict`.
[[nodiscard]] Result<std::vector<RankChange>> rank_changes(const Environment& environment, const Results& results,
                                                           const Calibration& after, std::size_t most);
/// The text of a calibration's file (see `own_calibration`); nothing when there is none. Errors: no such place, no
/// permission.
[[nodiscard]] Result<std::optional<std::string>> kept_calibration(const std::filesystem::path& file);
/// Puts a calibration where every later prediction for its device finds it, this program's and the command line's, or
/// takes it away; the one before is kept beside it. Error: it cannot be written.
[[nodiscard]] Result<void> keep_calibration(const std::filesystem::path& file, const std::optional<std::string>& text);

} // namespace foretrain::gui
