#include "planner/cli/child.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/cli/context.h"

namespace foretrain::cli {
namespace {

/// Between fork and exec.
[[noreturn]] void become(const char* program, char* const* arguments, bool quiet, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  if (quiet) dup2(STDERR_FILENO, STDOUT_FILENO);
  signal(SIGPIPE, SIG_DFL);
  execv(program, arguments);
  _exit(127);
}

} // namespace

Result<int> run_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                      const ChildOptions& options) {
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(words.front().c_str(), pointers.data(), options.quiet, parent);
  if (child < 0) return fail_environment(program.string(), std::string("cannot be started: ") + std::strerror(errno));
  bool asked = false;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!asked && options.stop && options.stop->load(std::memory_order_relaxed)) {
      asked = true;
      kill(child, SIGTERM);
    }
    constexpr timespec kTick{0, 20'000'000};
    nanosleep(&kTick, nullptr);
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  if (code == 127) return fail_environment(program.string(), "cannot be started", "is it a program of this system?");
  return code;
}

Result<std::filesystem::path> executor_program() {
  const std::filesystem::path beside = program_path().parent_path() / "foretrain-run";
  std::error_code ignored;
  if (std::filesystem::exists(beside, ignored)) return beside;
  return fail_environment(beside.string(), "is not there", "build or install the executor (cmake -DEXECUTOR=ON)");
}

} // namespace foretrain::cli
