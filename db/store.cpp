#include "db/store.h"

#include <system_error>
#include <utility>

#include <SQLiteCpp/Backup.h>
#include <sqlite3.h>

#include "core/base/digest.h"
#include "core/base/json.h"
#include "db/connection.h"

namespace foretrain {
namespace {

constexpr int kCopyTries = 200; ///< while another program writes
constexpr int kCopyPause = 50;  ///< milliseconds

} // namespace

Store::Store(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<Store> Store::open(const std::filesystem::path& path, OpenMode mode, const DataFolder& data, Seconds patience) {
  FORETRAIN_TRY(auto connection, open_connection(path, mode, data, patience));
  return Store(std::move(connection));
}

Result<std::string> Store::keep_calibration(const std::string& device, const std::string& document) {
  return in_transaction(*connection_, [&]() -> Result<std::string> {
    FORETRAIN_TRY([[maybe_unused]] const Json json, parse_json(document, "calibration of " + device));
    const std::string key = digest(document);
    SQLite::Statement insert(
        connection_->database,
        "INSERT INTO calibration(digest, device, document) VALUES(?, ?, ?) ON CONFLICT DO NOTHING");
    insert.bind(1, key);
    insert.bind(2, device);
    insert.bind(3, document);
    insert.exec();
    return key;
  });
}

Result<std::string> Store::calibration(const std::string& key) const {
  return guarded(connection_->path, [&]() -> Result<std::string> {
    SQLite::Statement select(connection_->database, "SELECT document FROM calibration WHERE digest = ?");
    select.bind(1, key);
    if (!select.executeStep()) return fail(connection_->path, "no calibration '" + key + "'");
    return select.getColumn(0).getString();
  });
}

Result<void> Store::keep_view_state(const std::string& name, const std::string& document) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    FORETRAIN_TRY([[maybe_unused]] const Json json, parse_json(document, "view state " + name));
    SQLite::Statement insert(connection_->database,
                             "INSERT INTO view_state(name, document) VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET "
                             "document = excluded.document, updated_at = excluded.updated_at");
    insert.bind(1, name);
    insert.bind(2, document);
    insert.exec();
    return {};
  });
}

Result<bool> Store::replace_view_state(const std::string& name, const std::optional<std::string>& before,
                                       const std::string& document) {
  return in_transaction(*connection_, [&]() -> Result<bool> {
    FORETRAIN_TRY([[maybe_unused]] const Json json, parse_json(document, "view state " + name));
    SQLite::Statement select(connection_->database, "SELECT document FROM view_state WHERE name = ?");
    select.bind(1, name);
    std::optional<std::string> now;
    if (select.executeStep()) now = select.getColumn(0).getString();
    if (now != before) return false;
    SQLite::Statement write(connection_->database,
                            "INSERT INTO view_state(name, document) VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET "
                            "document = excluded.document, updated_at = excluded.updated_at");
    write.bind(1, name);
    write.bind(2, document);
    write.exec();
    return true;
  });
}

Result<void> Store::copy_to(const std::filesystem::path& path) const {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (fs::equivalent(path, connection_->path, failed) && !failed)
    return fail(path.string(), "is this file itself", "choose another name");
  fs::path part = path;
  part += ".part";
  fs::remove(part, failed);
  auto written = guarded(part.string(), [&]() -> Result<void> {
    SQLite::Database copy(part.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    SQLite::Backup backup(copy, connection_->database);
    for (int tries = 0; backup.executeStep(-1) != SQLITE_DONE; ++tries) {
      if (tries == kCopyTries)
        return fail_environment(connection_->path, "another program is writing to this database",
                                "try again when it has finished");
      sqlite3_sleep(kCopyPause);
    }
    return {};
  });
  if (written) {
    // What lies beside a file of before would be taken for this one's.
    for (const char* suffix : {"-wal", "-shm"}) fs::remove(path.string() + suffix, failed);
    fs::rename(part, path, failed);
    if (!failed) return {};
    written = fail_environment(path.string(), "cannot be written: " + failed.message());
  }
  fs::remove(part, failed);
  return written;
}

Result<std::optional<std::string>> Store::view_state(const std::string& name) const {
  return guarded(connection_->path, [&]() -> Result<std::optional<std::string>> {
    SQLite::Statement select(connection_->database, "SELECT document FROM view_state WHERE name = ?");
    select.bind(1, name);
    if (!select.executeStep()) return std::optional<std::string>();
    return std::optional<std::string>(select.getColumn(0).getString());
  });
}

} // namespace foretrain
