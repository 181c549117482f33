#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "core/base/json.h"
#include "tests/architecture/repository_files.h"

/// What holds for every file of the repository.
namespace foretrain::architecture {
namespace {

/// Files above the limit of lines, each with the reason why it is one file. Tables (data, CSV) and generated pages are
/// not counted.
constexpr std::ptrdiff_t kLineLimit = 400;
const std::map<std::string, std::string>& long_files() {
  static const std::map<std::string, std::string> table = {
      {"scripts/calibrate-from-tables",
       "one pass from tables to calibrations; half of it is the list of devices and sources"},
  };
  return table;
}

bool has_line_limit(const std::string& path) {
  return path.ends_with(".h") || path.ends_with(".cpp") || path.ends_with(".py") || path.ends_with(".cmake") ||
         path.ends_with("CMakeLists.txt") || path.starts_with("scripts/") || path.starts_with(".ci/");
}

/// Places that exist on one machine only, after what may stand before a path. Put together here, so that this file does
/// not contain them.
std::vector<std::string> machine_places() {
  std::vector<std::string> places = {std::string("..") + "/shared/"};
  for (const std::string folder : {"work", "tmp", "root", "home", "mnt"})
    for (const std::string before : {"\"", "'", " ", "=", "(", "`"}) places.push_back(before + "/" + folder + "/");
  return places;
}

std::string first_machine_place(const std::string& text) {
  for (const std::string& place : machine_places())
    if (text.find(place) != std::string::npos) return place;
  return {};
}

/// A source is a non-empty "source" or "sources" anywhere in the document.
bool names_a_source(const Json& json) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if ((key == "source" || key == "sources") && !value.empty() && value != Json("")) return true;
      if (names_a_source(value)) return true;
    }
  }
  if (json.is_array()) return std::any_of(json.begin(), json.end(), names_a_source);
  return false;
}

TEST(Data, EveryJsonFileParsesAndNamesItsSource) {
  int files = 0;
  for (const RepositoryFile& file : repository_files()) {
    if (!file.path.starts_with("data/") || !file.path.ends_with(".json")) continue;
    ++files;
    const Result<Json> json = parse_json(file.text, file.path);
    ASSERT_TRUE(json.has_value()) << to_string(json.error());
    EXPECT_TRUE(names_a_source(*json)) << file.path << " names no source";
  }
  EXPECT_GT(files, 100);
}

TEST(Data, ASourceIsAKeyWithAValue) {
  EXPECT_TRUE(names_a_source(Json{{"gemm", {{"source", "vendor's datasheet"}}}}));
  EXPECT_FALSE(names_a_source(Json{{"source", ""}}));
  EXPECT_FALSE(names_a_source(Json{{"name", "source"}}));
}

TEST(Data, EveryTableIsNamedInItsFoldersReadme) {
  std::map<std::string, std::string> readmes;
  const std::vector<RepositoryFile> files = repository_files();
  for (const RepositoryFile& file : files)
    if (file.path.starts_with("data/") && file.path.ends_with("README.md")) readmes[file.path] = file.text;
  for (const RepositoryFile& file : files) {
    if (!file.path.starts_with("data/") || !file.path.ends_with(".csv")) continue;
    const std::size_t slash = file.path.rfind('/');
    const std::string name = file.path.substr(slash + 1);
    EXPECT_NE(readmes[file.path.substr(0, slash + 1) + "README.md"].find(name), std::string::npos)
        << file.path << " has no line that says where it comes from";
  }
}

TEST(Repository, NamesNoPlaceOfOneMachine) {
  for (const RepositoryFile& file : repository_files()) EXPECT_EQ(first_machine_place(file.text), "") << file.path;
  const std::string path = std::string("/tmp") + "/x";
  EXPECT_EQ(first_machine_place("see \"" + path + "\""), "\"/tmp" + std::string("/"));
}

TEST(Repository, SplitsFilesThatGrowLong) {
  for (const RepositoryFile& file : repository_files()) {
    if (!has_line_limit(file.path)) continue;
    const std::ptrdiff_t lines = std::count(file.text.begin(), file.text.end(), '\n');
    if (long_files().contains(file.path)) {
      EXPECT_GT(lines, kLineLimit - 50) << file.path << " is short now: take it off the list";
    } else {
      EXPECT_LE(lines, kLineLimit) << file.path << ": split it along a noun, or list it with the reason";
    }
  }
}

} // namespace
} // namespace foretrain::architecture
