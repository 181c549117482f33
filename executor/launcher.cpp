#include "executor/launcher.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

/// Runs in the child, between fork and exec: everything it needs was made before.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL); // a rank must not outlive its launcher
  if (getppid() != parent) _exit(127);
  execve(program, arguments, environment);
  _exit(127);
}

/// The environment of this process with the thread counts of the arithmetic libraries set: LibTorch's own setting does
/// not reach OpenBLAS.
std::vector<std::string> environment_of(int threads) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (text.rfind("OPENBLAS_NUM_THREADS=", 0) != 0 && text.rfind("OMP_NUM_THREADS=", 0) != 0) result.push_back(text);
  }
  result.push_back("OPENBLAS_NUM_THREADS=" + std::to_string(threads));
  result.push_back("OMP_NUM_THREADS=" + std::to_string(threads));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string ending(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = strsignal(WTERMSIG(status));
    return "was ended by signal " + std::to_string(WTERMSIG(status)) + (name ? " (" + std::string(name) + ")" : "");
  }
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

class Children {
public:
  Result<void> start(const LocalLaunch& launch) {
    std::vector<std::string> environment = environment_of(launch.threads);
    const std::vector<char*> environment_pointers = pointers(environment);
    for (int rank = 0; rank < launch.world; ++rank) {
      std::vector<std::string> arguments = {launch.program.string()};
      arguments.insert(arguments.end(), launch.arguments.begin(), launch.arguments.end());
      arguments.insert(arguments.end(), {"--rank", std::to_string(rank)});
      const std::vector<char*> argument_pointers = pointers(arguments);
      const pid_t parent = getpid();
      const pid_t child = fork();
      if (child == 0) become(launch.program.c_str(), argument_pointers.data(), environment_pointers.data(), parent);
      if (child < 0) {
        const std::string reason = std::strerror(errno);
        signal_all(SIGKILL);
        return fail_environment("rank " + std::to_string(rank), "cannot be started: " + reason);
      }
      processes_.push_back(child);
    }
    return {};
  }

  /// Takes note of those that have ended.
  void reap() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      if (processes_[rank] < 0) continue;
      int status = 0;
      if (waitpid(processes_[rank], &status, WNOHANG) != processes_[rank]) continue;
      processes_[rank] = -1;
      if (status == 0) continue;
      // One that a signal ended died before those that noticed it, even if they were seen first.
      if (!failed_ || (WIFSIGNALED(status) && !WIFSIGNALED(failed_status_) && !ending_)) {
        failed_ = static_cast<int>(rank);
        failed_status_ = status;
      }
    }
  }
  [[nodiscard]] bool running() const {
    for (const pid_t process : processes_)
      if (process > 0) return true;
    return false;
  }
  void signal_all(int number) {
    ending_ = true;
    for (const pid_t process : processes_)
      if (process > 0) kill(process, number);
  }
  [[nodiscard]] std::optional<int> failed() const { return failed_; }
  [[nodiscard]] std::string how() const { return ending(failed_status_); }

private:
  std::vector<pid_t> processes_; ///< −1 once ended
  std::optional<int> failed_;
  int failed_status_ = 0;
  bool ending_ = false; ///< we ended them: what they say now is no cause
};

} // namespace

Result<void> launch_local(const LocalLaunch& launch, const std::function<void()>& watch) {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&watched, number);
  sigprocmask(SIG_BLOCK, &watched, nullptr);
  Children children;
  if (auto started = children.start(launch); !started) return started;
  constexpr timespec kTick{0, 30'000'000};
  std::optional<Clock::time_point> deadline;
  bool interrupted = false;
  while (true) {
    const int signal = sigtimedwait(&watched, nullptr, &kTick);
    if ((signal == SIGINT || signal == SIGTERM) && !interrupted) {
      interrupted = true;
      children.signal_all(SIGTERM);
      deadline = Clock::now() + launch.grace;
    }
    children.reap();
    watch();
    if (!children.running()) break;
    if (children.failed() && !deadline) deadline = Clock::now() + launch.grace;
    if (deadline && Clock::now() > *deadline) children.signal_all(SIGKILL);
  }
  if (interrupted)
    return tl::unexpected<Error>(Error{Error::Kind::cancelled, "interrupted; the steps done so far are kept", "", ""});
  if (children.failed())
    return fail_environment("rank " + std::to_string(*children.failed()),
                            children.how() + "; the other ranks were ended");
  return {};
}

} // namespace foretrain
