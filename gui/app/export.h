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

/// The path that a dialog gave with the suffix of the kind chosen there ("PNG (*.png)"), unless another was typed than
/// `suggestion` had.
[[nodiscard]] std::string with_suffix(const std::string& file, const std::string& suggestion,
                                      const std::string& chosen_kind);

/// Writes a view; the suffix says as what. Errors: an unknown suffix, a file that cannot be written.
[[nodiscard]] Result<void> export_view(View& view, const std::string& file, QSize size, double scale);

} // namespace foretrain::gui
