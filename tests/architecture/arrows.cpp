#include "tests/architecture/arrows.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

namespace foretrain::architecture {
namespace {

/// Folders, the more specific first.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kFolders = {{
    {"core/base/", "base"},
    {"core/spec/", "spec"},
    {"core/program/", "program"},
    {"simulator/", "simulator"},
    {"planner/cli/", "cli"},
    {"planner/", "planner"},
    {"frameworks/", "frameworks"},
    {"executor/", "executor"},
    {"db/", "db"},
    {"gui/", "gui"},
    {"tests/", "tests"},
}};

/// Direct arrows; what a part's parts may include it may include too. foretrain-run is part of executor, and plans meet
/// runs in files, so that nothing includes executor.
const std::map<std::string, std::vector<std::string>, std::less<>>& arrows() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> table = {
      {"base", {}},
      {"spec", {"base"}},
      {"program", {"spec"}},
      {"simulator", {"program"}},
      {"planner", {"simulator"}},
      {"executor", {"program"}},
      {"db", {"spec"}},
      {"frameworks", {"spec"}},
      {"cli", {"planner", "frameworks", "db"}},
      {"gui", {"planner", "frameworks", "db"}},
      {"tests", {"cli", "executor", "gui"}},
  };
  return table;
}

bool may_include(const std::string& from, std::string_view to) {
  if (from == to) return true;
  const auto found = arrows().find(from);
  if (found == arrows().end()) return false;
  return std::any_of(found->second.begin(), found->second.end(),
                     [&](const std::string& next) { return may_include(next, to); });
}

/// A library's headers by the start of their name, and the folders (or files) that may use them.
struct Library {
  std::string_view header;
  std::vector<std::string_view> allowed;
};

const std::vector<Library>& libraries() {
  static const std::vector<std::string_view> executor = {"executor/", "tests/executor/"};
  static const std::vector<std::string_view> gui = {"gui/", "tests/gui/", "tests/bench/gui/"};
  static const std::vector<Library> table = {
      {"simgrid/", {"simulator/simgrid/", "tests/simulator/"}},
      {"xbt/", {"simulator/simgrid/", "tests/simulator/"}},
      {"torch/", executor},
      {"ATen/", executor},
      {"c10/", executor},
      {"c10d/", executor},
      {"gloo/", executor},
      {"nccl.h", executor},
      {"cuda", executor},
      {"nlohmann/", {"core/base/json.h"}},
      {"xxhash.h", {"core/base/digest.cpp"}},
      {"SQLiteCpp/", {"db/", "tests/db/"}},
      {"sqlite3.h", {"db/", "tests/db/"}},
      {"CLI/", {"planner/cli/", "executor/", "gui/app/"}},
      {"gtest/", {"tests/"}},
      {"gmock/", {"tests/"}},
      {"benchmark/", {"tests/bench/"}},
      {"Q", gui},
      {"qcustomplot.h", {"gui/plot/"}},
  };
  return table;
}

/// The name between the quotes or angle brackets of an include line.
struct Include {
  std::string_view name;
  bool quoted = false;
};

std::optional<Include> include_of(std::string_view line) {
  const auto skip_spaces = [&line] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  skip_spaces();
  if (!line.starts_with("#")) return std::nullopt;
  line.remove_prefix(1);
  skip_spaces();
  if (!line.starts_with("include")) return std::nullopt;
  line.remove_prefix(7);
  skip_spaces();
  if (line.empty() || (line.front() != '"' && line.front() != '<')) return std::nullopt;
  const bool quoted = line.front() == '"';
  line.remove_prefix(1);
  const std::size_t end = line.find(quoted ? '"' : '>');
  if (end == std::string_view::npos) return std::nullopt;
  return Include{line.substr(0, end), quoted};
}

std::string judge(std::string_view path, const std::string& from, const Include& include) {
  const std::string to = part_of(include.name);
  if (to.empty() && include.quoted)
    return std::string(path) + ": \"" + std::string(include.name) + "\" is not written from the repository's root";
  if (!to.empty() && !may_include(from, to))
    return std::string(path) + ": " + from + " may not include " + to + " (" + std::string(include.name) + ")";
  for (const Library& library : libraries()) {
    if (!include.name.starts_with(library.header)) continue;
    const bool allowed = std::any_of(library.allowed.begin(), library.allowed.end(),
                                     [&](std::string_view folder) { return path.starts_with(folder); });
    if (!allowed) return std::string(path) + ": <" + std::string(include.name) + "> may not be used here";
  }
  return {};
}

} // namespace

std::string part_of(std::string_view path) {
  for (const auto& [folder, part] : kFolders)
    if (path.starts_with(folder)) return std::string(part);
  return {};
}

std::vector<std::string> wrong_includes(std::string_view path, std::string_view text) {
  std::vector<std::string> wrong;
  const std::string from = part_of(path);
  if (from.empty()) return {std::string(path) + ": in no folder that the arrows know"};
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const std::optional<Include> include = include_of(text.substr(0, end))) {
      std::string verdict = judge(path, from, *include);
      if (!verdict.empty()) wrong.push_back(std::move(verdict));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrong;
}

} // namespace foretrain::architecture
