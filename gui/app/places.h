// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>

#include "core/base/result.h"
#include "gui/model/environment.h"

namespace foretrain::gui {

/// Presets, programs and cores of this machine. `data`: a folder given by the user, or empty. Error: no presets.
[[nodiscard]] Result<Environment> find_environment(const std::string& data, int jobs);
[[nodiscard]] std::string program_version();

} // namespace foretrain::gui
