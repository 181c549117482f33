// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/filter/field.h"
#include "planner/filter/filter.h"

namespace foretrain::gui {

/// One active condition: the expression box, the box under a column's title, or a brush on an axis.
struct Chip {
  enum class Kind { expression, column, brush };
  Kind kind = Kind::expression;
  std::string field; ///< column and brush
  std::string text;  ///< what the user wrote: "tp <= 8", ">4", "2~8", "1f1b|zb", "/re/"
  bool operator==(const Chip&) const = default;
};

/// "step s ≤ 1.2", "tp: 2~8": what the chip says.
[[nodiscard]] std::string chip_title(const Chip& chip);

/// The text under a column's title in the filter language: "8", ">4", "2~8", "<>x", "1f1b|zb", "/re/". Errors name the
/// place in the text.
[[nodiscard]] Result<std::string> column_expression(const Field& field, const std::string& text);

/// The chip in the filter language.
[[nodiscard]] Result<std::string> chip_expression(const Chip& chip);
[[nodiscard]] Result<Filter> chip_filter(const Chip& chip);

/// All chips as one expression, for commands and files. Chips that do not read are left out.
[[nodiscard]] std::string joined_expression(const std::vector<Chip>& chips);

/// Names that may stand where the cursor is: fields and, after a text field, its values.
[[nodiscard]] std::vector<std::string> completions(const std::string& text, std::size_t cursor);

} // namespace foretrain::gui
