#include "planner/cli/context.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace foretrain::cli {

Result<void> print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written)
    return fail_environment("stdout", "the output cannot be written", "is the disk full, or the pipe closed?");
  return {};
}

namespace {

/// Bytes of the character of UTF-8 at the start of `text`; 0: it is none, or none that a terminal prints.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0 ? 0 : length; // controls of Latin 1
}

/// A message holds what the user's files hold: nothing in them may steer the terminal.
std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = printable_length(text);
    shown += length > 0 ? std::string(text.substr(0, length))
                        : fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return shown;
}

} // namespace

int complain(const Error& error) {
  std::fprintf(stderr, "foretrain: %s\n", printable(to_string(error)).c_str());
  return error.kind == Error::Kind::cancelled ? kInterrupted : kBadInput;
}

int print_and(const std::string& text, int code) {
  errno = 0;
  const Result<void> printed = print(text);
  if (!printed && errno == EPIPE) return kBadInput; // a reader that has seen enough, as `head`: nothing to say
  return printed ? code : complain(printed.error());
}

void remark(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

int jobs_or_cores(int jobs) {
  return jobs > 0 ? jobs : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

Result<void> check_jobs(int jobs) {
  if (jobs >= 0 && jobs <= 1024) return {};
  return fail("--jobs", fmt::format("{} is not between 0 and 1024", jobs));
}

Result<DataFolder> find_data(const std::string& given, const std::filesystem::path& program) {
  std::error_code ignored;
  const auto is_data = [&ignored](const std::filesystem::path& folder) {
    return std::filesystem::is_directory(folder / "models", ignored);
  };
  if (!given.empty()) {
    if (is_data(given)) return DataFolder{given};
    return fail("--data", fmt::format("'{}' is no folder of presets", given),
                "it holds models/, clusters/, devices/, …");
  }
  const std::filesystem::path installed = program.parent_path().parent_path() / FORETRAIN_DATA_IN_PREFIX;
  for (const std::filesystem::path& folder : {installed, std::filesystem::path(FORETRAIN_SOURCE_DATA)})
    if (is_data(folder)) return DataFolder{folder};
  return fail_environment("--data", fmt::format("no presets in '{}'", installed.string()),
                          "name their folder with --data");
}

std::filesystem::path program_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

std::filesystem::path user_data_folder() {
  if (const char* data = std::getenv("XDG_DATA_HOME"); data && *data) return std::filesystem::path(data) / "foretrain";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".local" / "share" / "foretrain";
  return {};
}

int rank_in_environment() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* text = std::getenv(name)) return static_cast<int>(std::strtol(text, nullptr, 10));
  return 0;
}

int restarts_in_environment() {
  for (const char* name : {"FORETRAIN_RESTART", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"})
    if (const char* text = std::getenv(name)) return static_cast<int>(std::strtol(text, nullptr, 10));
  return 0;
}

int terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
    return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS")) {
    const long stated = std::strtol(columns, nullptr, 10);
    if (stated >= 20 && stated <= 1000) return static_cast<int>(stated);
  }
  return 80;
}

std::string_view version() {
  return FORETRAIN_VERSION;
}

} // namespace foretrain::cli
