// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>
#include <string>

#include "core/spec/presets.h"

namespace foretrain::gui {

/// What the desktop program needs from outside; `main` finds it.
struct Environment {
  DataFolder data;
  std::filesystem::path worker;  ///< foretrain-sim-worker; empty when it is not there
  std::filesystem::path command; ///< the program `foretrain`; empty when it is not there
  std::string version;
  int jobs = 1; ///< threads of a search
};

} // namespace foretrain::gui
