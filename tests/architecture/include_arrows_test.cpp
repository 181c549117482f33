#include <gtest/gtest.h>

#include "tests/architecture/arrows.h"
#include "tests/architecture/repository_files.h"

namespace foretrain::architecture {
namespace {

bool is_source(const std::string& path) {
  return path.ends_with(".h") || path.ends_with(".cpp") || path.ends_with(".inc");
}

std::string only_complaint(std::string_view path, std::string_view text) {
  const std::vector<std::string> wrong = wrong_includes(path, text);
  return wrong.size() == 1 ? wrong.front() : std::to_string(wrong.size()) + " complaints";
}

TEST(IncludeArrows, PointDownInEveryFile) {
  int sources = 0;
  for (const RepositoryFile& file : repository_files()) {
    // The consumer stands outside: it includes what was installed, by the installed name.
    if (!is_source(file.path) || file.path.starts_with("tests/consumer/")) continue;
    ++sources;
    for (const std::string& line : wrong_includes(file.path, file.text)) ADD_FAILURE() << line;
  }
  EXPECT_GT(sources, 100) << "the walk found too few files to mean anything";
}

TEST(IncludeArrows, FindAnArrowThatRunsTheWrongWay) {
  EXPECT_EQ(only_complaint("db/bad.h", "#pragma once\n#include \"planner/search.h\"\n"),
            "db/bad.h: db may not include planner (planner/search.h)");
  EXPECT_EQ(only_complaint("core/base/bad.h", "  # include \"core/spec/model.h\""),
            "core/base/bad.h: base may not include spec (core/spec/model.h)");
  EXPECT_EQ(only_complaint("planner/cli/run.cpp", "#include \"executor/run.h\"\n"),
            "planner/cli/run.cpp: cli may not include executor (executor/run.h)");
  EXPECT_EQ(only_complaint("planner/rank.cpp", "#include \"planner/cli/table.h\"\n"),
            "planner/rank.cpp: planner may not include cli (planner/cli/table.h)");
  EXPECT_EQ(only_complaint("executor/run.cpp", "#include \"simulator/cost.h\"\n"),
            "executor/run.cpp: executor may not include simulator (simulator/cost.h)");
  EXPECT_EQ(only_complaint("planner/cli/main.cpp", "#include \"gui/app/main_window.h\"\n"),
            "planner/cli/main.cpp: cli may not include gui (gui/app/main_window.h)");
  EXPECT_EQ(only_complaint("simulator/cost.cpp", "#include \"tests/simulator/cost_fixture.h\"\n"),
            "simulator/cost.cpp: simulator may not include tests (tests/simulator/cost_fixture.h)");
}

TEST(IncludeArrows, KeepLibrariesInTheirFolders) {
  EXPECT_EQ(only_complaint("simulator/replay.cpp", "#include <simgrid/s4u.hpp>\n"),
            "simulator/replay.cpp: <simgrid/s4u.hpp> may not be used here");
  EXPECT_EQ(only_complaint("core/program/lower.cpp", "#include <torch/torch.h>\n"),
            "core/program/lower.cpp: <torch/torch.h> may not be used here");
  EXPECT_EQ(only_complaint("core/spec/model.h", "#include <nlohmann/json.hpp>\n"),
            "core/spec/model.h: <nlohmann/json.hpp> may not be used here");
  EXPECT_EQ(only_complaint("db/store.h", "#include \"store.h\"\n"),
            "db/store.h: \"store.h\" is not written from the repository's root");
  EXPECT_EQ(only_complaint("helpers/a.cpp", ""), "helpers/a.cpp: in no folder that the arrows know");
}

TEST(IncludeArrows, AllowWhatPointsDown) {
  EXPECT_EQ(wrong_includes("planner/search.cpp", "#include <vector>\n#include \"core/base/result.h\"\n"
                                                 "#include \"simulator/cost.h\"\n#include \"planner/layouts.h\"\n"),
            std::vector<std::string>{});
  EXPECT_EQ(wrong_includes("planner/cli/main.cpp", "#include <CLI/CLI.hpp>\n#include \"db/store.h\"\n"),
            std::vector<std::string>{});
  EXPECT_EQ(wrong_includes("simulator/simgrid/engine.cpp", "#include <simgrid/s4u.hpp>\n"), std::vector<std::string>{});
  EXPECT_EQ(wrong_includes("executor/run.cpp", "#include <torch/torch.h>\n#include \"core/program/program.h\"\n"),
            std::vector<std::string>{});
}

} // namespace
} // namespace foretrain::architecture
