#include "planner/cli/context.h"

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

int complain(const Error& error) {
  std::fprintf(stderr, "foretrain: %s\n", to_string(error).c_str());
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
