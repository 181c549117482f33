// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gui/model/session.h"

namespace foretrain::gui {

/// One word or path as a POSIX shell reads it back.
[[nodiscard]] std::string shell_quoted(const std::string& text);
/// A command that repeats the search: the study as a here-document, so that it needs no file.
[[nodiscard]] std::string search_command(const Session& session);
/// A command that predicts this row again.
[[nodiscard]] std::string predict_command(const Session& session, int row);
/// The row's plan as JSON: what `foretrain predict` takes.
[[nodiscard]] std::string plan_json(const Session& session, int row);

/// A line of the details panel: a heading (no value) or a name with its value.
struct DetailLine {
  std::string name;
  std::string value;
  std::string note; ///< tooltip
};
/// Why this one: what it is, how it stands against the reference, where time and memory go, what it rests on.
[[nodiscard]] std::vector<DetailLine> detail_lines(Session& session, int row);

/// The shown rows as CSV: every field, full precision.
[[nodiscard]] std::string rows_csv(const Session& session, const std::vector<std::string>& columns);

/// "12,480 considered · 9,102 rejected · 3,378 predicted · 212 shown".
[[nodiscard]] std::string counts_line(const Session& session);

} // namespace foretrain::gui
