// SPDX-License-Identifier: GPL-3.0-or-later
#include <fstream>

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

TEST(Session, StopsSoonAndKeepsWhatWasFound) {
  Session session(test::environment());
  const auto document = parse_json(examples()[1].document, "example");
  session.open_study(*document, "open");
  session.start_search();
  session.stop_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching(); }));
  EXPECT_FALSE(session.results().complete);
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

TEST(SessionFile, BringsEverythingBack) {
  const test::Folder folder;
  const auto path = folder / "a.foretrain";
  std::size_t rows = 0;
  {
    Session session(test::environment());
    session.set_path(path);
    session.open_study(test::small_document(), "open");
    session.start_search();
    ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching() && !session.saving(); }));
    ASSERT_TRUE(session.problems().empty()) << session.problems().front().message;
    rows = session.rows().size();
    session.toggle_pin(2);
    ASSERT_TRUE(session.set_chip({Chip::Kind::column, "tp", ">=2"}));
    ASSERT_TRUE(session.save_view_state());
  }
  Session again(test::environment());
  const auto opened = again.open_file(path);
  ASSERT_TRUE(opened) << to_string(opened.error());
  ASSERT_TRUE(test::wait_until(again, [&] { return !again.loading(); }));
  EXPECT_EQ(again.rows().size(), rows);
  EXPECT_EQ(again.edits().document, test::small_document()) << "as it was written, presets by name";
  EXPECT_EQ(again.edits().chips.size(), 1U);
  EXPECT_EQ(again.edits().pins.size(), 1U);
  EXPECT_FALSE(again.stale());
  EXPECT_FALSE(again.results().rejected.empty());
}

TEST(SessionFile, RefusesWhatIsNone) {
  const test::Folder folder;
  Session session(test::environment());
  EXPECT_FALSE(session.open_file(folder / "missing.foretrain"));
  std::ofstream(folder / "text.foretrain") << "no database";
  EXPECT_FALSE(session.open_file(folder / "text.foretrain"));
  std::ofstream(folder / "torn.foretrain") << "SQLite format 3" << '\0' << "and then nothing of the kind";
  const auto torn = session.open_file(folder / "torn.foretrain");
  ASSERT_FALSE(torn);
  EXPECT_FALSE(torn.error().message.empty());
}

TEST(SessionFile, SaysWhenItCannotWrite) {
  Session session(test::environment());
  session.set_path("/proc/nowhere/a.foretrain");
  session.open_study(test::small_document(), "open");
  session.set_results(test::made_up_results(5));
  EXPECT_FALSE(session.save_view_state());
}

TEST(Edits, KeepKeysOfOtherPrograms) {
  Edits edits;
  edits.document = test::small_document();
  edits.chips = {{Chip::Kind::column, "tp", "8"}};
  edits.sort = {{"memory_gib", true}};
  const Json json = to_json(edits, Json{{"of-tomorrow", 7}});
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
