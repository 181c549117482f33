// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "gui/model/environment.h"

namespace foretrain::gui {

/// A run of the session file beside its prediction.
struct MeasuredRun {
  std::string title;
  std::string created_at;
  std::string status;
  std::optional<double> predicted_seconds;
  std::optional<double> measured_seconds; ///< median over the steps
  std::optional<double> predicted_bytes;  ///< allocated, of the fullest stage
  std::optional<double> measured_bytes;   ///< peak allocated, of the fullest rank
};

/// Newest first, at most 500. Errors: those of the store.
[[nodiscard]] Result<std::vector<MeasuredRun>> read_runs(const Environment& environment, const std::filesystem::path& path);

} // namespace foretrain::gui
