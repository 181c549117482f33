#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "executor/run.h"

namespace foretrain {

Result<void> append_line(const std::filesystem::path& path, const Json& document) {
  const std::string text = document.dump() + "\n";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return fail_environment(path.string(), std::string("cannot be opened: ") + std::strerror(errno));
  const ssize_t written = ::write(file, text.data(), text.size());
  const int problem = errno;
  ::close(file);
  if (written == static_cast<ssize_t>(text.size())) return {};
  return fail_environment(path.string(), std::string("cannot be written: ") +
                                             (written < 0 ? std::strerror(problem) : "the disk is full"));
}

} // namespace foretrain
