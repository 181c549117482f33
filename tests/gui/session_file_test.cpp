// SPDX-License-Identifier: GPL-3.0-or-later
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "core/base/json.h"
#include "db/store.h"
#include "gui/model/session.h"
#include "tests/db/other_program.h"
#include "tests/gui/fixtures.h"

/// The life of session files: kept, copied, shared, locked, older, newer, torn, on a full disk.
namespace foretrain::gui {
namespace {

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
  const Field& mfu = *find_field("mfu_percent");
  for (const Row& row : again.rows())
    ASSERT_GT(number_of(mfu, again.results().study, row), 0) << "also of rows that were not predicted in full";
}

void make_session(const std::filesystem::path& path, int rows) {
  Session session(test::environment());
  session.open_study(test::small_document(), "open");
  session.set_results(test::made_up_results(rows));
  ASSERT_TRUE(session.save_as(path));
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.saving(); }));
  ASSERT_TRUE(session.problems().empty()) << session.problems().front().message;
}

TEST(SessionFile, TwoWindowsOnOneFileOverwriteNothingOfEachOther) {
  const test::Folder folder;
  const auto path = folder / "a.foretrain";
  make_session(path, 20);
  Session one(test::environment());
  Session two(test::environment());
  for (Session* session : {&one, &two}) {
    ASSERT_TRUE(session->open_file(path));
    ASSERT_TRUE(test::wait_until(*session, [&] { return !session->loading(); }));
    ASSERT_EQ(session->rows().size(), 20U);
  }
  one.toggle_pin(1);
  ASSERT_TRUE(one.save_view_state());
  ASSERT_TRUE(one.save_view_state()) << "its own writing is no conflict";
  two.toggle_pin(5);
  const auto refused = two.save_view_state();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another window"), std::string::npos);
  EXPECT_TRUE(two.conflicted());
  EXPECT_TRUE(two.save_view_state()) << "it is told once";
  const auto pinned = [&](int row) {
    Session reader(test::environment());
    EXPECT_TRUE(reader.open_file(path));
    EXPECT_TRUE(test::wait_until(reader, [&] { return !reader.loading(); }));
    return reader.pinned(row);
  };
  EXPECT_TRUE(pinned(1));
  EXPECT_FALSE(pinned(5));
  ASSERT_TRUE(two.keep_mine());
  EXPECT_FALSE(two.conflicted());
  EXPECT_TRUE(pinned(5));
  EXPECT_FALSE(one.save_view_state()) << "now it is the other one that is told";
  ASSERT_TRUE(one.open_file(path)) << "reloading takes the other's";
  ASSERT_TRUE(test::wait_until(one, [&] { return !one.loading(); }));
  EXPECT_TRUE(one.pinned(5));
  EXPECT_FALSE(one.conflicted());
}

TEST(SessionFile, BothWindowsKeepWhatTheirSearchesFound) {
  const test::Folder folder;
  const auto path = folder / "a.foretrain";
  make_session(path, 20);
  Session one(test::environment());
  Session two(test::environment());
  for (Session* session : {&one, &two}) {
    ASSERT_TRUE(session->open_file(path));
    ASSERT_TRUE(test::wait_until(*session, [&] { return !session->loading(); }));
    session->start_search();
  }
  for (Session* session : {&one, &two}) {
    ASSERT_TRUE(test::wait_until(*session, [&] { return !session->searching() && !session->saving(); }));
    EXPECT_TRUE(session->problems().empty()) << session->problems().front().message;
  }
  const auto store = Store::open(path, OpenMode::read, test::environment().data);
  ASSERT_TRUE(store);
  EXPECT_EQ(store->studies(10).value().size(), 3U);
}

TEST(SessionFile, SavesAsWithWhatStillLiesBesideTheFile) {
  const test::Folder folder;
  const auto path = folder / "a.foretrain";
  make_session(path, 20);
  // A reader that stays keeps the log from being folded into the file: a plain copy would miss what is written now.
  auto reader = Store::open(path, OpenMode::read, test::environment().data);
  ASSERT_TRUE(reader);
  ASSERT_TRUE(reader->studies(1));
  Session session(test::environment());
  ASSERT_TRUE(session.open_file(path));
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.loading(); }));
  session.start_search();
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching() && !session.saving(); }));
  session.toggle_pin(0);
  const std::size_t rows = session.rows().size();
  ASSERT_TRUE(session.save_as(folder / "b.foretrain"));
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.saving(); }));
  ASSERT_TRUE(session.problems().empty()) << session.problems().front().message;
  EXPECT_EQ(session.path(), folder / "b.foretrain");
  std::filesystem::remove(path); // the copy stands alone
  Session again(test::environment());
  ASSERT_TRUE(again.open_file(folder / "b.foretrain"));
  ASSERT_TRUE(test::wait_until(again, [&] { return !again.loading(); }));
  EXPECT_EQ(again.rows().size(), rows);
  EXPECT_TRUE(again.pinned(0));
}

TEST(SessionFile, SavingAsWhereNothingCanBeWrittenStaysInTheFileBefore) {
  const test::Folder folder;
  const auto path = folder / "a.foretrain";
  make_session(path, 20);
  Session session(test::environment());
  ASSERT_TRUE(session.open_file(path));
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.loading(); }));
  (void)session.save_as(folder / "no such folder" / "b.foretrain");
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.saving(); }));
  ASSERT_FALSE(session.problems().empty());
  EXPECT_EQ(session.path(), path);
}

TEST(SessionFile, BringsAFileOfAnOlderProgramForward) {
  const test::Folder folder;
  make_session(folder / "old.foretrain", 20);
  foretrain::test::take_back_to_version_2(folder / "old.foretrain");
  Session session(test::environment());
  const auto opened = session.open_file(folder / "old.foretrain");
  ASSERT_TRUE(opened) << to_string(opened.error());
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.loading(); }));
  ASSERT_EQ(session.rows().size(), 20U);
  const auto made = test::made_up_results(20);
  EXPECT_EQ(session.rows().front().layout, made->rows.front().layout);
  EXPECT_EQ(session.rows().front().slots.device_bytes, made->rows.front().slots.device_bytes);
}

TEST(SessionFile, SaysThatAnotherProgramHoldsTheFile) {
  const test::Folder folder;
  const auto path = folder / "a.foretrain";
  make_session(path, 5);
  Session session(test::environment());
  ASSERT_TRUE(session.open_file(path));
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.loading(); }));
  const foretrain::test::OtherWriter lock(path);
  session.toggle_pin(1);
  const auto refused = session.save_view_state();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another program"), std::string::npos) << refused.error().message;
  Session reader(test::environment());
  EXPECT_TRUE(reader.open_file(path)) << "reading does not wait";
}

TEST(SessionFile, RefusesNewerAndTornFilesAndLeavesThemAsTheyAre) {
  const test::Folder folder;
  make_session(folder / "newer.foretrain", 5);
  foretrain::test::set_version(folder / "newer.foretrain", 999);
  make_session(folder / "torn.foretrain", 200);
  std::filesystem::resize_file(folder / "torn.foretrain", 8192 + 100);
  for (const char* name : {"newer.foretrain", "torn.foretrain"}) {
    const std::string before = read_text_file(folder / name).value();
    Session session(test::environment());
    const auto opened = session.open_file(folder / name);
    EXPECT_FALSE(opened) << name;
    EXPECT_FALSE(session.study());
    EXPECT_EQ(read_text_file(folder / name).value(), before) << name;
  }
}

/// While it lives, files of this process may not grow beyond some size: what a full disk looks like to a program.
class NoRoom {
public:
  explicit NoRoom(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    limited = ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
  }
  ~NoRoom() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
  bool limited = false;

private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(SessionFile, AFullDiskCostsTheFileNotTheWindow) {
  const test::Folder folder;
  const auto path = folder / "a.foretrain";
  make_session(path, 2000); // larger than what there is room for
  Session session(test::environment());
  ASSERT_TRUE(session.open_file(path));
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.loading(); }));
  {
    const NoRoom no_room(150'000);
    ASSERT_TRUE(no_room.limited);
    session.start_search();
    ASSERT_TRUE(test::wait_until(session, [&] { return !session.searching() && !session.saving(); }));
    EXPECT_TRUE(session.results().complete) << "what was found is still shown";
    EXPECT_GT(session.rows().size(), 5U);
    ASSERT_FALSE(session.problems().empty()) << "it is said that it could not be kept";
    (void)session.save_as(folder / "b.foretrain");
    ASSERT_TRUE(test::wait_until(session, [&] { return !session.saving(); }));
    EXPECT_EQ(session.path(), path);
    EXPECT_FALSE(std::filesystem::exists(folder / "b.foretrain")) << "half a copy";
  }
  Session again(test::environment());
  ASSERT_TRUE(again.open_file(path)) << "the file before is whole";
  ASSERT_TRUE(test::wait_until(again, [&] { return !again.loading(); }));
  EXPECT_TRUE(again.study());
  ASSERT_TRUE(session.save_as(folder / "b.foretrain")) << "with room again";
  ASSERT_TRUE(test::wait_until(session, [&] { return !session.saving(); }));
  EXPECT_EQ(session.path(), folder / "b.foretrain");
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

} // namespace
} // namespace foretrain::gui
