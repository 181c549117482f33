// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>
#include <string>

#include "core/base/result.h"
#include "core/spec/calibration.h"
#include "core/spec/presets.h"

namespace foretrain::gui {

/// What the desktop program needs from outside; `main` finds it.
struct Environment {
  DataFolder data;
  std::filesystem::path worker;    ///< foretrain-sim-worker; empty when it is not there
  std::filesystem::path command;   ///< the program `foretrain`; empty when it is not there
  std::filesystem::path executor;  ///< the program foretrain-run; empty when it is not there
  std::filesystem::path user_data; ///< the user's folder: calibrations of this machine; empty when there is none
  std::string version;
  int jobs = 1; ///< threads of a search
};

/// Where the user's own calibration of a device is kept; empty when there is no such place.
[[nodiscard]] std::filesystem::path own_calibration(const Environment& environment, const std::string& device);
/// As the command line takes it: the user's own, else a preset's. Error: a file that does not read.
[[nodiscard]] Result<Calibration> calibration_of(const Environment& environment, const DeviceSpec& device);

} // namespace foretrain::gui
