#include "db/connection.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include "db/migrations.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHeaderBytes = 100;
constexpr std::string_view kMagic{"SQLite format 3\0", 16};

std::uint32_t big_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

tl::unexpected<Error> newer(const std::string& name, long long version) {
  return fail(name,
              fmt::format("was written by a newer foretrain (version {} of the database, this program knows {})",
                          version, newest_version()),
              "use that program, or another file");
}

tl::unexpected<Error> foreign(const std::string& name) {
  return fail(name, "is an SQLite database of another program", "choose another file for --db");
}

/// Looks at the header (https://www.sqlite.org/fileformat.html section 1.3) without opening the database, so that a
/// file that is refused stays as it is to the byte: opening one in WAL mode may write to it.
Result<void> check_header(const fs::path& path) {
  const std::string name = path.string();
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return fail_environment(name, std::string("cannot be opened: ") + std::strerror(errno)); // NOLINT
  std::array<char, kHeaderBytes> header{};
  stream.read(header.data(), kHeaderBytes);
  const auto size = static_cast<std::size_t>(stream.gcount());
  if (size == 0) return {}; // just created by us or by someone else
  if (size < kHeaderBytes || std::string_view(header.data(), kMagic.size()) != kMagic)
    return fail(name, "is not a database", "choose another file for --db");
  const std::uint32_t version = big_endian(header.data() + 60);
  const std::uint32_t application = big_endian(header.data() + 68);
  if (application != static_cast<std::uint32_t>(kApplicationId)) {
    if (application != 0 || version != 0) return foreign(name);
    return {}; // new, or foreign without a mark: the list of tables tells
  }
  if (version > static_cast<std::uint32_t>(newest_version())) return newer(name, version);
  return {};
}

Result<void> check_place(const fs::path& path, OpenMode mode) {
  const std::string name = path.string();
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found) {
    if (mode == OpenMode::read) return fail(name, "no such file");
    const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
    if (!fs::is_directory(folder, code)) return fail(name, "the folder " + folder.string() + " does not exist");
    if (::access(folder.c_str(), W_OK) != 0)
      return fail_environment(name, "the folder " + folder.string() + " cannot be written");
    return {};
  }
  if (code) return fail_environment(name, code.message());
  if (fs::is_directory(status)) return fail(name, "is a directory, not a file");
  if (!fs::is_regular_file(status)) return fail(name, "is not a regular file");
  if (::access(path.c_str(), R_OK) != 0) return fail_environment(name, "cannot be read: permission denied");
  if (mode == OpenMode::write && ::access(path.c_str(), W_OK) != 0)
    return fail_environment(name, "cannot be written: permission denied");
  return check_header(path);
}

/// The file as a URI, with the characters escaped that have a meaning there.
std::string uri(const fs::path& path, std::string_view options) {
  std::string result = "file:";
  for (const char c : fs::absolute(path).string()) {
    if (c == '%' || c == '?' || c == '#')
      result += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result + "?" + std::string(options);
}

/// SQLite reads a WAL database through a file beside it. Where none can be made and none is pending, the file does not
/// change either and may be read as it stands.
bool readable_only_as_it_stands(const fs::path& path) {
  const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  if (::access(folder.c_str(), W_OK) == 0) return false;
  std::error_code code;
  const auto pending = fs::file_size(path.string() + "-wal", code);
  return code || pending == 0;
}

SQLite::Database open_database(const fs::path& path, OpenMode mode, int patience_ms) {
  if (mode == OpenMode::write)
    return SQLite::Database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX,
                            patience_ms);
  const bool fixed = readable_only_as_it_stands(path);
  return SQLite::Database(uri(path, fixed ? "mode=ro&immutable=1" : "mode=ro"),
                          SQLite::OPEN_READONLY | SQLite::OPEN_URI | SQLite::OPEN_NOMUTEX, patience_ms);
}

/// Changing to WAL asks for the file alone and does not wait for it by itself.
void use_wal(SQLite::Database& database, int patience_ms) {
  constexpr int kPauseMs = 10;
  for (int waited = 0;; waited += kPauseMs) {
    try {
      database.exec("PRAGMA journal_mode = WAL");
      return;
    } catch (const SQLite::Exception& exception) {
      const int code = exception.getErrorCode();
      if ((code != SQLITE_BUSY && code != SQLITE_LOCKED) || waited >= patience_ms) throw;
      sqlite3_sleep(kPauseMs);
    }
  }
}

Result<void> prepare(Store::Connection& connection, OpenMode mode, int patience_ms) {
  SQLite::Database& database = connection.database;
  database.exec("PRAGMA foreign_keys = ON");
  database.exec("PRAGMA cache_size = -65536"); // KiB: a batch of candidates with its indices stays in memory
  const int version = database.execAndGet("PRAGMA user_version").getInt();
  const int application = database.execAndGet("PRAGMA application_id").getInt();
  const int tables = database.execAndGet("SELECT count(*) FROM sqlite_master").getInt();
  if (application != kApplicationId && (tables > 0 || application != 0 || version != 0))
    return foreign(connection.path);
  if (version > newest_version()) return newer(connection.path, version);
  if (mode == OpenMode::read) {
    if (version == 0) return fail(connection.path, "holds nothing yet", "write to it with foretrain plan --db");
    if (version < newest_version())
      return fail(connection.path, "was written by an older foretrain", "write to it once with foretrain plan --db");
    return {};
  }
  use_wal(database, patience_ms);
  migrate(database, migrations());
  return {};
}

} // namespace

Error translate(const std::string& path, const SQLite::Exception& exception) {
  Error error{Error::Kind::environment, exception.what(), path, {}};
  switch (exception.getErrorCode()) {
  case SQLITE_FULL:
    error.message = "cannot be written: the disk is full";
    error.hint = "what was committed before stands";
    break;
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    error.message = "another program is writing to this database";
    error.hint = "try again when it has finished";
    break;
  case SQLITE_NOTADB:
    error.message = "is not a database";
    break;
  case SQLITE_CORRUPT:
    error.message = std::string("is damaged: ") + exception.what();
    break;
  case SQLITE_READONLY:
    error.message = "cannot be written: the file or its folder is read-only";
    break;
  case SQLITE_CANTOPEN:
    error.message = "cannot be opened";
    break;
  case SQLITE_PERM:
    error.message = "permission denied";
    break;
  case SQLITE_IOERR:
    error.message = fmt::format("cannot be read or written: {} (SQLite code {})", exception.what(),
                                exception.getExtendedErrorCode());
    error.hint = "is the disk full or gone?";
    break;
  default:
    error.message = fmt::format("SQLite: {}", exception.what());
    break;
  }
  return error;
}

Error translate(const std::string& path, const std::exception& exception) {
  return Error{Error::Kind::environment, std::string("holds something unexpected: ") + exception.what(), path, {}};
}

Result<std::unique_ptr<Store::Connection>> open_connection(const fs::path& path, OpenMode mode, const DataFolder& data,
                                                           Seconds patience) {
  const std::string name = path.string();
  if (name.empty()) return fail("--db", "the file has no name");
  const int patience_ms = static_cast<int>(patience.value * 1e3);
  return guarded(name, [&]() -> Result<std::unique_ptr<Store::Connection>> {
    if (auto place = check_place(path, mode); !place) return tl::unexpected<Error>(place.error());
    auto connection =
        std::unique_ptr<Store::Connection>(new Store::Connection{name, data, open_database(path, mode, patience_ms)});
    if (auto ready = prepare(*connection, mode, patience_ms); !ready) return tl::unexpected<Error>(ready.error());
    return connection;
  });
}

} // namespace foretrain
