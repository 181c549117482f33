#include "tests/db/other_program.h"

#include <string>

#include <SQLiteCpp/SQLiteCpp.h>

namespace foretrain::test {

struct OtherWriter::Data {
  SQLite::Database database;
  SQLite::Transaction transaction;
  explicit Data(const std::filesystem::path& path)
      : database(path.string(), SQLite::OPEN_READWRITE), transaction(database, SQLite::TransactionBehavior::IMMEDIATE) {
  }
};

OtherWriter::OtherWriter(const std::filesystem::path& path) : data_(std::make_unique<Data>(path)) {}
OtherWriter::~OtherWriter() = default;

void set_version(const std::filesystem::path& path, int version) {
  SQLite::Database(path.string(), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = " + std::to_string(version));
}

void take_back_to_version_2(const std::filesystem::path& path) {
  SQLite::Database(path.string(), SQLite::OPEN_READWRITE)
      .exec("ALTER TABLE candidate DROP COLUMN code; ALTER TABLE prediction DROP COLUMN evidence; "
            "ALTER TABLE prediction DROP COLUMN fullest_stage; PRAGMA user_version = 2");
}

} // namespace foretrain::test
