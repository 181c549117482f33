#include "planner/cli/table.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "core/base/text.h"
#include "planner/explain.h"

namespace foretrain::cli {
namespace {

/// Columns of the layout table in order. `idle`: hidden when every row shows this. `rank`: the lowest is taken first
/// when not all fit, 0 always. `once`: said below the table when it is the same in every row.
struct Column {
  std::string_view field;
  std::string_view idle;
  int rank = 0;
  bool once = false;
};
constexpr std::array kColumns = {
    Column{"step_time_s", "", 0},
    Column{"tokens_per_s_per_gpu", "", 7},
    Column{"mfu_percent", "-", 3},
    Column{"memory_gib", "", 1},
    Column{"headroom_gib", "-", 12},
    Column{"cost_per_mtoken", "-", 6},
    Column{"tp", "", 0},
    Column{"pp", "", 0},
    Column{"cp", "1", 0},
    Column{"ep", "1", 0},
    Column{"etp", "1", 9, true},
    Column{"dp", "", 0},
    Column{"dp_replicate", "1", 2, true},
    Column{"micro_batch", "", 0},
    Column{"sequence_parallel", "no", 8, true},
    Column{"overlap_tp", "no", 8, true},
    Column{"schedule", "", 1, true},
    Column{"chunks", "1", 1, true},
    Column{"group", "-", 1, true},
    Column{"sharding", "", 2, true},
    Column{"recompute_detail", "", 1, true},
    Column{"context_parallel", "-", 2, true},
    Column{"dispatch", "-", 2, true},
    Column{"offload_optimizer", "no", 5, true},
    Column{"engine", "", 11, true},
};

bool looks_like_number(std::string_view text) {
  return !text.empty() && (text == "-" || text.find_first_not_of("0123456789.,+-%") == std::string_view::npos);
}

int width_of(const std::vector<std::string>& column) {
  int widest = 0;
  for (const std::string& cell : column) widest = std::max(widest, columns_of(cell));
  return widest;
}

/// Takes columns by rank as long as they fit; those of rank 0 always. In their own order.
std::vector<std::size_t> fitting_columns(const std::vector<std::vector<std::string>>& columns,
                                         const std::vector<Column>& shown, int width) {
  std::vector<std::size_t> order(columns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return shown[a].rank < shown[b].rank; });
  std::vector<std::size_t> taken;
  int used = -2;
  for (const std::size_t i : order) {
    const int more = width_of(columns[i]) + 2;
    if (shown[i].rank > 0 && used + more > width) continue;
    used += more;
    taken.push_back(i);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

} // namespace

int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string wrapped(const std::string& line, int width) {
  std::string out;
  std::string rest = line;
  std::string indent;
  while (columns_of(rest) > width) {
    std::size_t at = std::string::npos;
    for (std::size_t i = indent.size() + 1; i < rest.size() && columns_of(rest.substr(0, i)) <= width; ++i)
      if (rest[i] == ' ' && i > indent.size()) at = i;
    if (at == std::string::npos) break;
    out += rest.substr(0, at) + "\n";
    indent = std::string(std::min<std::size_t>(line.find_first_not_of(' '), 8) + 2, ' ');
    rest = indent + rest.substr(at + 1);
  }
  return out + rest + "\n";
}

std::string text_table(const std::vector<std::vector<std::string>>& rows, int indent) {
  if (rows.empty()) return "";
  std::vector<int> widths(rows.front().size(), 0);
  std::vector<bool> right(rows.front().size(), true);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; c < rows[r].size() && c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], columns_of(rows[r][c]));
      if (r > 0 && !looks_like_number(rows[r][c])) right[c] = false;
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < row.size() && c < widths.size(); ++c) {
      const std::string padding(static_cast<std::size_t>(widths[c] - columns_of(row[c])), ' ');
      if (c > 0) line += "  ";
      line += right[c] ? padding + row[c] : row[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string bold(const std::string& text, bool color) {
  return color ? "\033[1m" + text + "\033[0m" : text;
}

std::string with_bold_head(const std::string& table, bool color) {
  const std::size_t end = std::min(table.find('\n'), table.size());
  return bold(table.substr(0, end), color) + table.substr(end);
}

namespace {

/// For terminals that even the narrowest table does not fit: a layout in words below its figures.
LayoutTable layout_list(std::span<const FieldRow> rows, int width) {
  LayoutTable list;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string figures = fmt::format("{}.", i + 1);
    for (const std::string_view id : {"step_time_s", "memory_gib"}) {
      const Field* field = find_field(id);
      figures += fmt::format("  {} {}", field->title, format_value(*field, field->get(rows[i])));
    }
    list.text += wrapped(figures, width) + wrapped("  " + describe(rows[i].layout), width);
  }
  return list;
}

} // namespace

LayoutTable layout_table(std::span<const FieldRow> rows, int width) {
  LayoutTable table;
  std::vector<std::vector<std::string>> columns = {{"#"}};
  std::vector<Column> shown = {{"#", "", 0}};
  for (std::size_t i = 0; i < rows.size(); ++i) columns.front().push_back(std::to_string(i + 1));
  for (const Column& column : kColumns) {
    const Field* field = find_field(column.field);
    std::vector<std::string> cells = {std::string(field->title)};
    for (const FieldRow& row : rows) cells.push_back(format_value(*field, field->get(row)));
    const bool idle =
        std::all_of(cells.begin() + 1, cells.end(), [&](const std::string& cell) { return cell == column.idle; });
    if (idle && !column.idle.empty()) continue;
    const bool same = rows.size() > 1 && std::all_of(cells.begin() + 1, cells.end(),
                                                     [&](const std::string& cell) { return cell == cells[1]; });
    if (column.once && same) {
      table.in_all_rows.push_back(fmt::format("{} {}", cells[0], cells[1]));
      continue;
    }
    columns.push_back(std::move(cells));
    shown.push_back(column);
  }
  const std::vector<std::size_t> fitting = fitting_columns(columns, shown, width);
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (std::find(fitting.begin(), fitting.end(), i) == fitting.end()) table.left_out.emplace_back(shown[i].field);
  std::vector<std::vector<std::string>> lines(rows.size() + 1);
  for (const std::size_t i : fitting)
    for (std::size_t r = 0; r < lines.size(); ++r) lines[r].push_back(columns[i][r]);
  table.text = text_table(lines);
  return columns_of(table.text.substr(0, table.text.find('\n'))) > width ? layout_list(rows, width) : table;
}

std::string layout_table_notes(const LayoutTable& table, int width) {
  std::string notes;
  if (!table.in_all_rows.empty()) notes += wrapped("in all rows: " + join(table.in_all_rows, ", "), width);
  if (!table.left_out.empty())
    notes += wrapped("not shown for want of width (see --csv): " + join(table.left_out, ", "), width);
  return notes;
}

std::string csv_table(std::span<const FieldRow> rows) {
  std::string out;
  for (const Field& field : fields()) out += fmt::format("{}{}", out.empty() ? "" : ",", field.id);
  out += "\n";
  for (const FieldRow& row : rows) {
    bool first = true;
    for (const Field& field : fields()) {
      if (!first) out += ",";
      first = false;
      out += csv_value(field.get(row));
    }
    out += "\n";
  }
  return out;
}

} // namespace foretrain::cli
