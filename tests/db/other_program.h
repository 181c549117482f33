#pragma once

#include <filesystem>
#include <memory>

/// What other programs do to a database, for tests that do not include SQLite.
namespace foretrain::test {

/// Holds the file for writing until it is gone.
class OtherWriter {
public:
  explicit OtherWriter(const std::filesystem::path& path);
  ~OtherWriter();
  OtherWriter(const OtherWriter&) = delete;
  OtherWriter& operator=(const OtherWriter&) = delete;

private:
  struct Data;
  std::unique_ptr<Data> data_;
};

/// Marks the file as written by a program of this version of the database.
void set_version(const std::filesystem::path& path, int version);
/// Makes of it what programs before version 3 wrote.
void take_back_to_version_2(const std::filesystem::path& path);

} // namespace foretrain::test
