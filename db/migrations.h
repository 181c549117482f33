#pragma once

#include <span>

namespace SQLite {
class Database;
}

namespace foretrain {

/// "FTRN": what `file` shows and what tells our databases from those of other programs.
inline constexpr int kApplicationId = 0x4654524e;

/// One step forward. Written once, never changed after a release: files that took it stay as they are.
struct Migration {
  int version = 0; ///< `user_version` afterwards; steps are numbered 1, 2, …
  const char* sql = nullptr;
};

/// All steps, in order. A change of the schema is a new one at the end.
[[nodiscard]] std::span<const Migration> migrations();

/// The version that this program writes.
[[nodiscard]] int newest_version();

/// Takes the steps that the file lacks, each in one transaction with its version number, so that a kill between two
/// leaves a file of the earlier version. Two programs may do it at once. Throws SQLite::Exception.
void migrate(SQLite::Database& database, std::span<const Migration> steps);

} // namespace foretrain
