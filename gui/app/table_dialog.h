// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

class QDialog;
class QWidget;

namespace foretrain::gui {

/// The cells of a CSV text, line by line; quotes as in RFC 4180.
[[nodiscard]] std::vector<std::vector<std::string>> csv_cells(const std::string& csv);

/// A window with the table that a CSV text is; Ctrl+C copies the selected cells.
[[nodiscard]] std::unique_ptr<QDialog> table_dialog(const std::string& title, const std::string& csv, QWidget* parent);

} // namespace foretrain::gui
