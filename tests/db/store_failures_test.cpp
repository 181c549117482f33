#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "db/migrations.h"
#include "tests/db/samples.h"

namespace foretrain {
namespace {

using namespace test;
namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Message of the error that opening gives; empty when it opens.
std::string problem(const fs::path& path, OpenMode mode = OpenMode::write) {
  const auto store = Store::open(path, mode, data_folder(), Seconds(0.2));
  return store ? "" : to_string(store.error());
}

void make_database(const fs::path& path, int batches = 1) {
  auto store = Store::open(path, OpenMode::write, data_folder());
  ASSERT_TRUE(store) << to_string(store.error());
  const StudyId study = store->begin_study(sample_study(), "1").value();
  for (int i = 0; i < batches; ++i) ASSERT_TRUE(store->add_candidates(study, sample_batch(i * 100, 100)));
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(StoreFailures, NamesAFileOrFolderThatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_HAS(problem(folder / "none.db", OpenMode::read), "no such file");
  EXPECT_FALSE(fs::exists(folder / "none.db"));
  EXPECT_HAS(problem(folder / "no/such/folder.db"), "does not exist");
  EXPECT_HAS(problem(folder.path()), "is a directory");
  EXPECT_HAS(problem(""), "no name");
}

TEST(StoreFailures, RefusesAndKeepsAFileOfANewerProgram) {
  const TemporaryFolder folder;
  make_database(folder / "a.db");
  SQLite::Database(folder / "a.db", SQLite::OPEN_READWRITE)
      .exec("PRAGMA user_version = " + std::to_string(newest_version() + 1));
  const std::string before = content(folder / "a.db");
  for (const OpenMode mode : {OpenMode::read, OpenMode::write}) EXPECT_HAS(problem(folder / "a.db", mode), "newer");
  EXPECT_EQ(content(folder / "a.db"), before);
  EXPECT_FALSE(fs::exists(folder / "a.db-wal"));
}

TEST(StoreFailures, RefusesAndKeepsADatabaseOfAnotherProgram) {
  const TemporaryFolder folder;
  SQLite::Database(folder / "marked.db", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE)
      .exec("PRAGMA application_id = 5; CREATE TABLE a(x)");
  SQLite::Database(folder / "plain.db", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE a(x)");
  for (const char* name : {"marked.db", "plain.db"}) {
    const std::string before = content(folder / name);
    EXPECT_HAS(problem(folder / name), "another program") << name;
    EXPECT_EQ(content(folder / name), before) << name;
  }
}

TEST(StoreFailures, RefusesAndKeepsAFileThatIsNoDatabase) {
  const TemporaryFolder folder;
  write(folder / "a.db", "hello");
  write(folder / "b.db", std::string(5000, 'x'));
  write(folder / "c.db", std::string("SQLite format 3\0", 16));
  for (const char* name : {"a.db", "b.db", "c.db"}) {
    const std::string before = content(folder / name);
    EXPECT_HAS(problem(folder / name), "not a database") << name;
    EXPECT_EQ(content(folder / name), before) << name;
  }
}

TEST(StoreFailures, UsesAnEmptyFileAsANewDatabase) {
  const TemporaryFolder folder;
  write(folder / "a.db", "");
  EXPECT_HAS(problem(folder / "a.db", OpenMode::read), "holds nothing yet");
  EXPECT_EQ(problem(folder / "a.db"), "");
}

TEST(StoreFailures, ReportsDamage) {
  const TemporaryFolder folder;
  make_database(folder / "a.db", 5);
  std::string bytes = content(folder / "a.db");
  std::fill(bytes.begin() + 4096, bytes.end(), '\x5a'); // all pages but the first
  write(folder / "a.db", bytes);
  auto store = Store::open(folder / "a.db", OpenMode::read, data_folder());
  const auto read = store ? store->studies(10).map([](const auto&) {}) : store.map([](const auto&) {});
  ASSERT_FALSE(read);
  EXPECT_HAS(to_string(read.error()), "damaged");
}

TEST(StoreFailures, ReportsATruncatedFile) {
  const TemporaryFolder folder;
  make_database(folder / "a.db", 5);
  fs::resize_file(folder / "a.db", 8192 + 100);
  auto store = Store::open(folder / "a.db", OpenMode::write, data_folder());
  const auto read = store ? store->studies(10).map([](const auto&) {}) : store.map([](const auto&) {});
  EXPECT_FALSE(read);
}

TEST(StoreFailures, ReportsAStoredDocumentThatDoesNotRead) {
  const TemporaryFolder folder;
  make_database(folder / "a.db");
  SQLite::Database(folder / "a.db", SQLite::OPEN_READWRITE).exec("UPDATE study SET spec = '{\"model\": 3}'");
  const auto store = Store::open(folder / "a.db", OpenMode::read, data_folder());
  ASSERT_TRUE(store);
  const auto study = store->study(StudyId{1});
  ASSERT_FALSE(study);
  EXPECT_HAS(to_string(study.error()), "study 1");
}

TEST(StoreFailures, GivesUpOnALockAfterItsPatience) {
  const TemporaryFolder folder;
  make_database(folder / "a.db");
  SQLite::Database other(folder / "a.db", SQLite::OPEN_READWRITE);
  const SQLite::Transaction lock(other, SQLite::TransactionBehavior::IMMEDIATE);
  auto store = Store::open(folder / "a.db", OpenMode::write, data_folder(), Seconds(0.1));
  ASSERT_TRUE(store) << to_string(store.error());
  EXPECT_TRUE(store->studies(1)) << "readers do not wait";
  const auto study = store->begin_study(sample_study(), "1");
  ASSERT_FALSE(study);
  EXPECT_HAS(to_string(study.error()), "another program");
}

/// Runs `body` in a child and returns its exit code: for what cannot be undone in this process.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Permissions do not bind root, so that root becomes nobody.
void give_up_root() {
  if (::getuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(99);
}

TEST(StoreFailures, ReportsAFileOrFolderThatMayNotBeWritten) {
  const TemporaryFolder folder;
  make_database(folder / "a.db");
  fs::permissions(folder / "a.db", fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  fs::permissions(folder.path(), fs::perms(0555));
  const int code = in_child([&] {
    give_up_root();
    if (problem(folder / "new.db").find("cannot be written") == std::string::npos) return 1;
    if (problem(folder / "a.db").find("permission denied") == std::string::npos) return 2;
    const auto store = Store::open(folder / "a.db", OpenMode::read, data_folder());
    if (!store || store->studies(10).value().size() != 1) return 3; // reading still works
    return 0;
  });
  fs::permissions(folder.path(), fs::perms(0755));
  EXPECT_EQ(code, 0);
}

TEST(StoreFailures, ReportsAFileThatMayBeWrittenInAFolderThatMayNot) {
  const TemporaryFolder folder;
  make_database(folder / "a.db");
  fs::permissions(folder / "a.db", fs::perms(0666));
  fs::permissions(folder.path(), fs::perms(0555));
  const int code = in_child([&] {
    give_up_root();
    return problem(folder / "a.db").empty() ? 1 : 0;
  });
  fs::permissions(folder.path(), fs::perms(0755));
  EXPECT_EQ(code, 0);
}

/// Adds batches until one fails; 0 when the error is the one of a full disk and all earlier batches stand.
int fill_up(const fs::path& path, const std::string& expected) {
  int committed = 0;
  {
    auto store = Store::open(path, OpenMode::write, data_folder());
    if (!store) return 1;
    const auto study = store->begin_study(sample_study(), "1");
    if (!study) return 2;
    while (true) {
      const auto added = store->add_candidates(*study, sample_batch(committed * 100, 100));
      if (!added && to_string(added.error()).find(expected) == std::string::npos) return 3;
      if (!added) break;
      if (++committed > 1000) return 4;
    }
    if (store->summary(*study).value().candidates != committed * 100) return 5;
  }
  const auto store = Store::open(path, OpenMode::read, data_folder());
  if (!store || store->summary(StudyId{1}).value().candidates != committed * 100) return 6;
  return 0;
}

TEST(StoreFailures, KeepsCommittedBatchesWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  const fs::path disk = folder / "disk";
  fs::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=2m") != 0) GTEST_SKIP() << "no permission to mount a small disk";
  const int code = in_child([&] { return fill_up(disk / "a.db", "the disk is full"); });
  ::umount(disk.c_str());
  EXPECT_EQ(code, 0);
}

TEST(StoreFailures, KeepsCommittedBatchesWhenTheFileMayNotGrow) {
  const TemporaryFolder folder;
  const int code = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2'000'000, 2'000'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 98;
    return fill_up(folder / "a.db", "cannot be");
  });
  EXPECT_EQ(code, 0);
}

} // namespace
} // namespace foretrain
