#pragma once

#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>

#include <SQLiteCpp/SQLiteCpp.h>

#include "core/base/result.h"
#include "db/store.h"

namespace foretrain {

/// The open file. Private to db/: SQLiteCpp's names and exceptions stay in this folder.
struct Store::Connection {
  std::string path;
  DataFolder data;
  SQLite::Database database;
};

/// Opens, checks and (for writing) brings the file up to date.
[[nodiscard]] Result<std::unique_ptr<Store::Connection>>
open_connection(const std::filesystem::path& path, OpenMode mode, const DataFolder& data, Seconds patience);

/// What an exception of SQLite means to the user.
[[nodiscard]] Error translate(const std::string& path, const SQLite::Exception& exception);
[[nodiscard]] Error translate(const std::string& path, const std::exception& exception);

/// Runs `body`, which returns a Result, and turns exceptions into errors.
template <class Body> [[nodiscard]] auto guarded(const std::string& path, Body&& body) -> std::invoke_result_t<Body> {
  try {
    return body();
  } catch (const SQLite::Exception& exception) {
    return tl::unexpected<Error>(translate(path, exception));
  } catch (const std::exception& exception) {
    return tl::unexpected<Error>(translate(path, exception));
  }
}

/// The same inside one write transaction: all of `body` or nothing.
template <class Body>
[[nodiscard]] auto in_transaction(Store::Connection& connection, Body&& body) -> std::invoke_result_t<Body> {
  return guarded(connection.path, [&]() -> std::invoke_result_t<Body> {
    SQLite::Transaction transaction(connection.database, SQLite::TransactionBehavior::IMMEDIATE);
    auto result = body();
    if (result) transaction.commit();
    return result;
  });
}

} // namespace foretrain
