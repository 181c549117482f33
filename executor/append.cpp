#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "executor/run.h"

namespace foretrain {

namespace {

/// Writes the whole text in one write, after opening with these flags.
Result<void> put(const std::filesystem::path& path, int flags, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (file < 0) return fail_environment(path.string(), std::string("cannot be opened: ") + std::strerror(errno));
  const ssize_t written = text.empty() ? 0 : ::write(file, text.data(), text.size());
  const int problem = errno;
  ::close(file);
  if (written == static_cast<ssize_t>(text.size())) return {};
  return fail_environment(path.string(), std::string("cannot be written: ") +
                                             (written < 0 ? std::strerror(problem) : "the disk is full"));
}

} // namespace

Result<void> start_file(const std::filesystem::path& path) {
  std::error_code problem;
  const std::filesystem::file_status status = std::filesystem::status(path, problem);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return fail(path.string(), "is not a regular file",
                "records are appended to it and read back while the run goes on");
  return put(path, O_TRUNC, "");
}

Result<void> append_line(const std::filesystem::path& path, const Json& document) {
  return put(path, O_APPEND, document.dump() + "\n");
}

} // namespace foretrain
