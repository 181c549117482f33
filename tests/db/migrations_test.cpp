#include "db/migrations.h"

#include <array>

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/db/samples.h"

namespace foretrain {
namespace {

int version(SQLite::Database& database) {
  return database.execAndGet("PRAGMA user_version").getInt();
}

SQLite::Database open(const std::filesystem::path& path) {
  return SQLite::Database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
}

TEST(Migrations, AreNumberedWithoutGaps) {
  int expected = 0;
  for (const Migration& step : migrations()) EXPECT_EQ(step.version, ++expected);
  EXPECT_EQ(newest_version(), expected);
}

TEST(Migrations, BringAnOldFileForwardOnce) {
  const test::TemporaryFolder folder;
  SQLite::Database database = open(folder / "a.db");
  const std::array first = {Migration{1, "CREATE TABLE a(x)"}};
  migrate(database, first);
  database.exec("INSERT INTO a VALUES(7)");
  const std::array both = {first[0], Migration{2, "ALTER TABLE a ADD COLUMN y DEFAULT 8"}};
  migrate(database, both);
  migrate(database, both);
  EXPECT_EQ(version(database), 2);
  EXPECT_EQ(database.execAndGet("SELECT x + y FROM a").getInt(), 15);
  EXPECT_EQ(database.execAndGet("PRAGMA application_id").getInt(), kApplicationId);
}

TEST(Migrations, LeaveTheFileAtTheLastStepThatWorked) {
  const test::TemporaryFolder folder;
  SQLite::Database database = open(folder / "a.db");
  const std::array steps = {Migration{1, "CREATE TABLE a(x)"}, Migration{2, "CREATE TABLE b(x); CREATE TABLE a(x)"}};
  EXPECT_THROW(migrate(database, steps), SQLite::Exception);
  EXPECT_EQ(version(database), 1);
  EXPECT_FALSE(database.tableExists("b"));
}

/// A file of the second version, with what its programs wrote, is listed by this one.
TEST(Migrations, FillTheColumnsOfTheThirdVersionFromDocuments) {
  const test::TemporaryFolder folder;
  StudyId study;
  {
    SQLite::Database database = open(folder / "a.db");
    migrate(database, migrations().first(2));
    const std::string spec = to_json(test::sample_study()).dump();
    SQLite::Statement insert(database, "INSERT INTO study(digest, spec, program_version) VALUES('d', ?, '0')");
    insert.bind(1, spec);
    insert.exec();
    study = StudyId{database.getLastInsertRowid()};
    Prediction prediction = test::sample_prediction(2.0);
    std::swap(prediction.memory[0], prediction.memory[1]); // the fuller stage is the second
    SQLite::Statement candidate(database, "INSERT INTO candidate(study, digest, layout) VALUES(?, 'd', ?)");
    candidate.bind(1, study.value);
    candidate.bind(2, to_json(test::sample_layout(5)).dump());
    candidate.exec();
    SQLite::Statement kept(
        database, "INSERT INTO prediction(candidate, engine, detail, semantics, calibration, verdict, "
                  "step_time_s, peak_device_bytes, document) VALUES(1, 'slots', 0, '', '', 'fits', 2.0, 7, ?)");
    kept.bind(1, prediction_text(prediction));
    kept.exec();
  }
  auto store = Store::open(folder / "a.db", OpenMode::write, test::data_folder());
  ASSERT_TRUE(store) << to_string(store.error());
  std::vector<RankedRow> rows;
  const auto listed = store->each_ranked(study, Objective::step_time, [&](RankedRow row) {
    rows.push_back(std::move(row));
    return true;
  });
  ASSERT_TRUE(listed) << to_string(listed.error());
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].layout, test::sample_layout(5));
  EXPECT_EQ(rows[0].evidence, Evidence::fitted);
  EXPECT_EQ(rows[0].fullest_stage, 1);
}

TEST(Migrations, GiveEveryTableOfTheDesign) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(Store::open(folder / "a.db", OpenMode::write, test::data_folder()));
  SQLite::Database database = open(folder / "a.db");
  for (const char* table : {"study", "candidate", "prediction", "rejection_count", "near_miss", "run", "run_prediction",
                            "run_op", "measurement", "calibration", "view_state"})
    EXPECT_TRUE(database.tableExists(table)) << table;
  EXPECT_EQ(database.execAndGet("PRAGMA journal_mode").getString(), "wal");
  EXPECT_THROW(database.exec("INSERT INTO study(digest, spec, program_version) VALUES('', 'not json', '')"),
               SQLite::Exception);
}

} // namespace
} // namespace foretrain
