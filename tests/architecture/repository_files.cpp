#include "tests/architecture/repository_files.h"
#include "tests/support/places.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace foretrain::architecture {
namespace {

bool is_skipped(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (std::filesystem::is_directory(path))
    return name == "build" || name.starts_with("build-") || name == "__pycache__" ||
           (name.starts_with(".") && name != ".ci");
  const std::string kind = path.extension().string();
  return kind == ".db" || kind == ".db-wal" || kind == ".db-shm" || name == ".git" || name == "compile_commands.json" ||
         name == "CMakeUserPresets.json";
}

} // namespace

std::vector<RepositoryFile> repository_files() {
  const std::filesystem::path root = test::source_folder();
  std::vector<RepositoryFile> files;
  for (auto entry = std::filesystem::recursive_directory_iterator(root);
       entry != std::filesystem::recursive_directory_iterator(); ++entry) {
    if (is_skipped(entry->path())) {
      entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file()) continue;
    const std::ifstream stream(entry->path(), std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    files.push_back({entry->path().lexically_relative(root).generic_string(), text.str()});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

} // namespace foretrain::architecture
