// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <chrono>
#include <filesystem>

#include <gtest/gtest.h>

#include "gui/model/commands.h"
#include "gui/model/examples.h"
#include "gui/model/session.h"
#include "tests/gui/fixtures.h"

namespace foretrain::gui {
namespace {

TEST(Session, SearchesInTheBackgroundAndSelectsTheBest) {
  Session session(test::environment());
  session.open_study(test::small_document(), "open");
  ASSERT_TRUE(session.study());
  session.start_search();
  EXPECT_TRUE(session.searching());
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  ASSERT_GT(session.rows().size(), 5U);
  EXPECT_EQ(session.current(), 0);
  EXPECT_TRUE(session.results().complete);
  EXPECT_FALSE(session.stale());
  const auto edited = [](Edits& edits) { edits.document["job"]["global_batch"] = 64; };
  session.edit("batch", edited);
  EXPECT_TRUE(session.stale()) << "the rows belong to the study before";
}

TEST(Session, SearchesAsFarAsItIsAsked) {
  Session session(test::environment());
  session.open_study(test::small_document(), "open");
  session.start_search(Extent::best);
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  const std::int64_t some = session.results().fits;
  session.start_search(Extent::exhaustive);
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  EXPECT_LE(some, session.results().fits);
  EXPECT_FALSE(session.results().pruned.contains("bound"));
}

TEST(Session, StopsSoonAndKeepsWhatWasFound) {
  Session session(test::environment());
  const auto document = parse_json(examples()[1].document, "example");
  session.open_study(*document, "open");
  session.start_search();
  session.stop_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  EXPECT_FALSE(session.results().complete);
}

TEST(Session, FillsWhileTheSearchRuns) {
  Session session(test::environment());
  session.open_study(*parse_json(examples()[1].document, "example"), "open");
  std::vector<std::size_t> counts; // rows, at each change while the search ran
  std::vector<double> best;
  session.observe([&](Changes changes) {
    if ((changes & kRowsChanged) == 0 || !session.searching() || session.rows().empty()) return;
    counts.push_back(session.rows().size());
    best.push_back(step_seconds(session.rows().front()));
    EXPECT_FALSE(session.results().complete);
  });
  session.start_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !counts.empty() || !session.searching(); }));
  ASSERT_FALSE(counts.empty()) << "nothing was shown before the end";
  EXPECT_EQ(session.shown().size(), session.rows().size());
  session.select({2});
  const Layout chosen = session.rows()[2].layout;
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  EXPECT_TRUE(std::is_sorted(best.rbegin(), best.rend())) << "the best only gets better";
  if (session.current() >= 0) {
    EXPECT_EQ(session.rows()[static_cast<std::size_t>(session.current())].layout, chosen);
  }
  EXPECT_TRUE(session.results().complete);
  EXPECT_GE(session.rows().size(), counts.back());
}

TEST(Session, StoppingKeepsTheRowsThatWereShown) {
  Session session(test::environment());
  session.open_study(*parse_json(examples()[1].document, "example"), "open");
  session.start_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.rows().empty() || !session.searching(); }));
  const Row best = session.rows().front();
  session.stop_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  ASSERT_FALSE(session.rows().empty());
  EXPECT_LE(session.rows().front().slots.step_seconds, best.slots.step_seconds * 1.02)
      << "a replay may put another first";
}

TEST(Session, EditingWhileSearchingMarksTheRowsAsOld) {
  Session session(test::environment());
  session.open_study(*parse_json(examples()[1].document, "example"), "open");
  session.start_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.rows().empty() || !session.searching(); }));
  EXPECT_FALSE(session.stale());
  session.edit("batch", [](Edits& edits) { edits.document["job"]["global_batch"] = 512; });
  EXPECT_TRUE(session.stale());
  session.stop_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  EXPECT_TRUE(session.stale());
  EXPECT_EQ(session.results().study.job.global_batch, 256) << "what is shown belongs to the study that was searched";
}

TEST(Session, SimulatesOneLayoutOnTheNetwork) {
  Session session(test::environment());
  if (!std::filesystem::exists(session.environment().worker)) GTEST_SKIP() << "this build has no worker for SimGrid";
  session.open_study(test::small_document(), "open");
  session.start_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  session.simulate(1);
  EXPECT_EQ(session.simulating(), 1);
  ASSERT_TRUE(test::wait_until(session, [&] { return session.simulating() < 0 && session.detail(1) != nullptr; }));
  const auto detail = session.detail(1);
  ASSERT_NE(detail->network, nullptr) << detail->network_problem;
  EXPECT_EQ(detail->network->prediction.engine, Engine::simgrid);
  EXPECT_GT(detail->network->prediction.step_time.value, 0);
  EXPECT_FALSE(detail->network->run.groups.empty());
  session.simulate(0);
  session.stop_simulation();
  ASSERT_TRUE(test::wait_until(session, [&] { return session.simulating() < 0; }));
  Environment without = test::environment();
  without.worker = "/no/such/worker";
  Session other(without);
  other.open_study(test::small_document(), "open");
  other.set_results(std::make_shared<Results>(session.results()));
  other.simulate(0);
  ASSERT_TRUE(test::wait_until(other, [&] { return other.simulating() < 0 && other.detail(0) != nullptr; }));
  EXPECT_FALSE(other.detail(0)->network_problem.empty()) << "a worker that does not start costs this one figure";
}

TEST(Session, ForgetsReplaysOfTheStudyBefore) {
  Session session(test::environment());
  session.set_results(test::made_up_results(8));
  for (int row = 0; row < 8; ++row) (void)session.detail(row);
  auto other = std::make_shared<Results>(session.results());
  other->study.job.global_batch = 64;
  const auto before = std::chrono::steady_clock::now();
  session.set_results(other);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count(), 0.1)
      << "it waits for nothing";
  ASSERT_TRUE(test::wait_until(session, [&] { return session.detail(0) != nullptr; }));
}

TEST(Session, ClosesWhileSearching) {
  for (int i = 0; i < 3; ++i) {
    Session session(test::environment());
    session.open_study(*parse_json(examples()[1].document, "example"), "open");
    session.start_search();
  }
}

TEST(Session, ReportsWhatIsWrongWithAStudyAndWhere) {
  Session session(test::environment());
  Json document = test::small_document();
  document["job"]["global_batch"] = -1;
  session.open_study(document, "open");
  EXPECT_FALSE(session.study());
  ASSERT_EQ(session.problems().size(), 1U);
  EXPECT_NE(session.problems().front().where.find("/job/global_batch"), std::string::npos);
  session.start_search();
  EXPECT_FALSE(session.searching());
}

TEST(Session, TellsUndoOfEachEditWhatWasBefore) {
  Session session(test::environment());
  std::vector<std::pair<Edits, Edits>> steps;
  std::vector<std::string> titles;
  session.edited = [&](const std::string& title, const Edits& before, const Edits& after) {
    titles.push_back(title);
    steps.emplace_back(before, after);
  };
  session.set_results(test::made_up_results(20));
  ASSERT_TRUE(session.set_chip({Chip::Kind::column, "tp", "8"}));
  session.toggle_pin(3);
  session.set_baseline(2);
  EXPECT_EQ(titles, (std::vector<std::string>{"filter tp: 8", "pin #4", "baseline #3"}));
  EXPECT_TRUE(session.pinned(3));
  session.apply(steps[1].first);
  EXPECT_FALSE(session.pinned(3));
  EXPECT_EQ(session.baseline(), -1);
  EXPECT_EQ(session.edits().chips.size(), 1U);
}

TEST(Session, KeepsTheFilterThatHoldsWhenTheNextOneDoesNotRead) {
  Session session(test::environment());
  session.set_results(test::made_up_results(50));
  ASSERT_TRUE(session.set_chip({Chip::Kind::expression, "", "tp == 8"}));
  const std::size_t shown = session.shown().size();
  EXPECT_LT(shown, 50U);
  EXPECT_FALSE(session.set_chip({Chip::Kind::expression, "", "tp =="}));
  EXPECT_EQ(session.shown().size(), shown);
  EXPECT_EQ(session.hidden_by(session.edits().chips.front()), 50 - static_cast<int>(shown));
}

TEST(Session, SelectionFollowsItsLayoutWhenRowsArrive) {
  Session session(test::environment());
  session.set_results(test::made_up_results(20));
  session.select({7});
  const Layout chosen = session.rows()[7].layout;
  auto reversed = std::make_shared<Results>(session.results());
  std::reverse(reversed->rows.begin(), reversed->rows.end());
  session.set_results(reversed);
  ASSERT_GE(session.current(), 0);
  EXPECT_EQ(session.rows()[static_cast<std::size_t>(session.current())].layout, chosen);
}

TEST(Session, ReplaysAsked) {
  Session session(test::environment());
  session.set_results(test::made_up_results(20));
  EXPECT_EQ(session.detail(0), nullptr) << "it is being worked out";
  ASSERT_TRUE(test::wait_until(session, [&] { return session.detail(0) != nullptr; }));
  ASSERT_NE(session.detail(0)->simulation, nullptr) << session.detail(0)->problem;
  EXPECT_FALSE(session.detail(0)->simulation->events.empty());
}

TEST(Edits, KeepKeysOfOtherPrograms) {
  Edits edits;
  edits.document = test::small_document();
  edits.chips = {{Chip::Kind::column, "tp", "8"}};
  edits.sort = {{"memory_gib", true}};
  const Json json = with_edits(edits, Json{{"of-tomorrow", 7}});
  EXPECT_EQ(json["of-tomorrow"], 7);
  EXPECT_EQ(edits_from(json), edits);
  EXPECT_EQ(edits_from(Json("nonsense")), Edits());
}

TEST(Commands, RunOnlyWhenTheyCan) {
  CommandRegistry registry;
  int runs = 0;
  bool enabled = false;
  registry.add({"a", "File", "Start the search", "", [&] { ++runs; }, [&] { return enabled; }});
  registry.add({"b", "File", "Save", "", [&] { runs += 10; }});
  EXPECT_FALSE(registry.run("a"));
  enabled = true;
  EXPECT_TRUE(registry.run("a"));
  EXPECT_FALSE(registry.run("c"));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(registry.matching("sts").front()->id, "a");
  EXPECT_EQ(registry.matching("sav").front()->id, "b");
}

TEST(Examples, AreLegalStudies) {
  ASSERT_EQ(examples().size(), 3U);
  for (const Example& example : examples()) {
    Session session(test::environment());
    session.open_study(*parse_json(example.document, example.id), "open");
    EXPECT_TRUE(session.study()) << example.id << ": " << session.problems().front().message;
  }
}

} // namespace
} // namespace foretrain::gui
