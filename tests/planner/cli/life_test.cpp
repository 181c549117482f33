// A plan as a process among others: killed, beside another on one database, watched on a terminal.
#include <chrono>
#include <thread>

#include "tests/planner/cli/program.h"

namespace foretrain::test {
namespace {

std::vector<std::string> long_plan(const std::string& file) {
  return {"plan",           "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "512",  "--seq-len", "8192",
          "--global-batch", "2048",    "--engine",   "slots",     "--jobs",   "1",      "--db", file};
}

TEST(PlanLife, AKillAtAnyMomentLosesNothingThatWasCommitted) {
  const Folder folder;
  const std::string file = folder / "studies.db";
  ASSERT_EQ(foretrain(small_plan({"--db", file})).code, 0);
  const Json before = foretrain({"db", "best", file, "--json"}).json();
  for (const int milliseconds : {20, 120, 500, 1500}) {
    Started started(long_plan(file));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    started.kill();
    EXPECT_EQ(started.end().code, 1000 + SIGKILL) << "it was still at work";
    const Outcome listed = foretrain({"db", "list", file, "--json"});
    ASSERT_EQ(listed.code, 0) << listed.err;
    const Json studies = listed.json()["studies"];
    ASSERT_GE(studies.size(), 1U);
    int complete = 0;
    std::string first;
    for (const Json& study : studies)
      if (study["complete"] == true) {
        ++complete;
        first = std::to_string(study["id"].get<int>());
      }
    EXPECT_EQ(complete, 1);
    EXPECT_EQ(foretrain({"db", "best", file, first, "--json"}).json()["ranked"], before["ranked"]);
  }
  EXPECT_EQ(foretrain(small_plan({"--db", file})).code, 0) << "and the database takes another study";
}

TEST(PlanLife, TwoPlansAtOnceKeepBothStudiesInOneDatabase) {
  const Folder folder;
  const std::string file = folder / "studies.db";
  Started one(small_plan({"--db", file}));
  Started two(small_plan({"--db", file}));
  const Outcome first = one.end();
  const Outcome second = two.end();
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  const Json studies = foretrain({"db", "list", file, "--json"}).json()["studies"];
  ASSERT_EQ(studies.size(), 2U);
  EXPECT_EQ(studies[0]["space"], studies[1]["space"]);
}

TEST(PlanLife, ATerminalSeesHowFarTheSearchIsAndThenAClearLine) {
  if (!terminals_exist()) GTEST_SKIP() << "no pseudo-terminals here (is /dev/pts mounted?)";
  const Outcome outcome = Started(small_plan(), {.out = {}, .largest_file = 0, .terminal = true}).end();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("search"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find('%'), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find('\r'), std::string::npos) << "one line that is written over";
}

} // namespace
} // namespace foretrain::test
