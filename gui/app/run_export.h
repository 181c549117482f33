// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "core/base/result.h"
#include "gui/app/options.h"
#include "gui/model/environment.h"

namespace foretrain::gui {

/// `--export`: opens what is named, searches when asked to, writes the view. Needs an application object, no display.
[[nodiscard]] Result<void> run_export(const Options& options, Environment environment);

} // namespace foretrain::gui
