#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/filter/field.h"

namespace foretrain::cli {

/// A table of texts: the first row is the head. Columns are as wide as their widest cell, numbers to the right.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows, int indent = 0);

/// Columns of a printed text in a terminal: UTF-8 characters, each one wide.
[[nodiscard]] int columns_of(std::string_view text);

/// A line broken at spaces so that it fits, continuation lines indented; with a newline at the end.
[[nodiscard]] std::string wrapped(const std::string& line, int width);

/// For terminals: bold, or as it is.
[[nodiscard]] std::string bold(const std::string& text, bool color);
/// The first line of a table in bold.
[[nodiscard]] std::string with_bold_head(const std::string& table, bool color);

struct LayoutTable {
  std::string text;
  std::vector<std::string> left_out;    ///< field ids of columns that did not fit
  std::vector<std::string> in_all_rows; ///< "sharding optimizer": what would be a column of equal cells
};

/// Rows ranked from 1, columns from the list of fields. Columns in which every row has the value of an axis that is not
/// used are hidden; what is still too wide for `width` loses its least telling columns, and is a list in the end.
[[nodiscard]] LayoutTable layout_table(std::span<const FieldRow> rows, int width);

/// Below the table: what is the same in all rows, what did not fit; empty when there is nothing to say.
[[nodiscard]] std::string layout_table_notes(const LayoutTable& table, int width);

/// Every field of every row, with a header of ids.
[[nodiscard]] std::string csv_table(std::span<const FieldRow> rows);

} // namespace foretrain::cli
