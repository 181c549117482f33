// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/places.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

namespace foretrain::gui {
namespace {

namespace fs = std::filesystem;

fs::path beside(const fs::path& program, const char* name) {
  std::error_code ignored;
  fs::path path = program.parent_path() / name;
  return fs::exists(path, ignored) ? path : fs::path();
}

/// Where the command line keeps it too.
fs::path user_data_folder() {
  if (const char* data = std::getenv("XDG_DATA_HOME"); data && *data) return fs::path(data) / "foretrain";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".local" / "share" / "foretrain";
  return {};
}

} // namespace

std::string program_version() {
  return FORETRAIN_VERSION;
}

Result<Environment> find_environment(const std::string& data, int jobs) {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  Environment environment;
  environment.version = program_version();
  environment.worker = beside(program, "foretrain-sim-worker");
  environment.command = beside(program, "foretrain");
  environment.executor = beside(program, "foretrain-run");
  environment.user_data = user_data_folder();
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  environment.jobs = jobs > 0 ? jobs : std::max(1, cores - 1); // one is left for the window
  const fs::path installed = program.parent_path().parent_path() / FORETRAIN_DATA_IN_PREFIX;
  std::vector<fs::path> folders = {installed, FORETRAIN_SOURCE_DATA};
  if (!data.empty()) folders = {data};
  for (const fs::path& folder : folders) {
    if (!fs::is_directory(folder / "models", ignored)) continue;
    environment.data = DataFolder{folder};
    return environment;
  }
  if (!data.empty()) return fail("--data", "'" + data + "' is no folder of presets", "it holds models/, clusters/, …");
  return fail_environment("--data", "no presets in '" + installed.string() + "'", "name their folder with --data");
}

} // namespace foretrain::gui
