// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <vector>

#include <QSize>

#include "core/base/result.h"

namespace foretrain::gui {

class View;

/// Kinds of files a view can be written as, by suffix.
[[nodiscard]] const std::vector<std::string>& export_kinds();

/// Writes a view; the suffix says as what. Errors: an unknown suffix, a file that cannot be written.
[[nodiscard]] Result<void> export_view(View& view, const std::string& file, QSize size, double scale);

} // namespace foretrain::gui
