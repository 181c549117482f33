// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace foretrain::gui {

/// The command line.
struct Options {
  std::vector<std::string> files;
  std::string view;
  std::string filter;
  std::string select; ///< rank of the row to select
  bool search = false;
  std::string export_to;
  int width = 1280;
  int height = 800;
  bool size_given = false;
  double scale = 1;
  std::string theme = "system"; ///< light, dark, system
  std::string style = "fusion";
  bool reset_layout = false;
  std::string data;
  int jobs = 0; ///< 0: one per core but one
};

/// Absent when the program is done: `exit_code` says how (help, version, a mistake, which is on stderr).
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv, const std::string& version,
                                                   const std::vector<std::string>& views, int& exit_code);

} // namespace foretrain::gui
