// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/options.h"

#include <cstdio>

#include <CLI/CLI.hpp>

namespace foretrain::gui {
namespace {

/// "1280x800".
std::string read_size(const std::string& text, Options& options) {
  int width = 0;
  int height = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%dx%d%c", &width, &height, &rest) != 2 || width < 100 || height < 80 ||
      width > 20'000 || height > 20'000)
    return "'" + text + "' is no size such as 1280x800 (100x80 … 20000x20000)";
  options.width = width;
  options.height = height;
  options.size_given = true;
  return {};
}

} // namespace

std::optional<Options> parse_options(int argc, char** argv, const std::string& version,
                                     const std::vector<std::string>& views, int& exit_code) {
  Options options;
  CLI::App app("Plans distributed training of transformers: a window on studies, layouts and why they rank as they do.",
               "foretrain-gui");
  app.set_version_flag("--version", version);
  app.add_option("files", options.files, "session, study.json, plan.json, cluster.json or a Hugging Face config.json");
  app.add_option("--view", options.view, "view to show or export")->check(CLI::IsMember(views));
  app.add_option("--filter", options.filter, "show only these layouts, such as 'tp <= 8 and memory_gib < 70'");
  app.add_option("--select", options.select, "rank of the layout to select")->check(CLI::PositiveNumber);
  app.add_flag("--search", options.search, "search at once");
  app.add_option("--export", options.export_to,
                 "write the view to a file (png, svg, pdf, csv, tsv) without a display, and end");
  app.add_option_function<std::string>(
      "--size",
      [&](const std::string& text) {
        if (const std::string wrong = read_size(text, options); !wrong.empty())
          throw CLI::ValidationError("--size", wrong);
      },
      "size of the window or the picture, WIDTHxHEIGHT");
  app.add_option("--scale", options.scale, "pixels per point of an exported PNG")->check(CLI::Range(0.5, 8.0));
  app.add_option("--theme", options.theme, "light, dark or system")->check(CLI::IsMember({"light", "dark", "system"}));
  app.add_option("--style", options.style, "style of Qt, fusion by default");
  app.add_flag("--reset-layout", options.reset_layout, "forget where windows and docks were");
  app.add_option("--data", options.data, "folder of presets");
  app.add_option("--jobs", options.jobs, "threads of a search; 0: one less than there are cores")
      ->check(CLI::Range(0, 1024));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 1;
    return std::nullopt;
  }
  return options;
}

} // namespace foretrain::gui
