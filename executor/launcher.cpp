#include "executor/launcher.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

/// Runs in the child, between fork and exec: everything it needs was made before.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment, pid_t parent, int log) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL); // a rank must not outlive its launcher
  setpgid(0, 0);                    // Ctrl-C in a terminal is for the launcher, which ends the ranks in order
  if (log >= 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
  }
  if (getppid() != parent) _exit(127);
  execve(program, arguments, environment);
  _exit(127);
}

/// The environment of this process with the thread counts of the arithmetic libraries set: LibTorch's own setting does
/// not reach OpenBLAS.
std::vector<std::string> environment_of(const LocalLaunch& launch) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (text.rfind("OPENBLAS_NUM_THREADS=", 0) != 0 && text.rfind("OMP_NUM_THREADS=", 0) != 0) result.push_back(text);
  }
  result.push_back("OPENBLAS_NUM_THREADS=" + std::to_string(launch.threads));
  result.push_back("OMP_NUM_THREADS=" + std::to_string(launch.threads));
  result.insert(result.end(), launch.environment.begin(), launch.environment.end());
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// −1 when there is no folder for logs.
Result<int> open_log(const std::filesystem::path& folder, int rank) {
  if (folder.empty()) return -1;
  const std::filesystem::path file = folder / ("rank-" + std::to_string(rank) + ".log");
  const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (log < 0) return fail_environment(file.string(), std::string("cannot be opened: ") + std::strerror(errno));
  return log;
}

std::string signal_text(int number) {
  const char* name = strsignal(number);
  return "signal " + std::to_string(number) + (name ? " (" + std::string(name) + ")" : "");
}

std::string ending(int status) {
  if (WIFSIGNALED(status)) return "was ended by " + signal_text(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

class Children {
public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() { // those that are left when a start failed
    signal_all(SIGKILL);
    for (const pid_t process : processes_)
      if (process > 0) waitpid(process, nullptr, 0);
  }

  Result<void> start(const LocalLaunch& launch) {
    std::vector<std::string> environment = environment_of(launch);
    const std::vector<char*> environment_pointers = pointers(environment);
    for (int rank = 0; rank < launch.world; ++rank) {
      std::vector<std::string> arguments = {launch.program.string()};
      arguments.insert(arguments.end(), launch.arguments.begin(), launch.arguments.end());
      arguments.insert(arguments.end(), {"--rank", std::to_string(rank)});
      const std::vector<char*> argument_pointers = pointers(arguments);
      FORETRAIN_TRY(const int log, open_log(launch.logs, rank));
      const pid_t parent = getpid();
      const pid_t child = fork();
      if (child == 0)
        become(launch.program.c_str(), argument_pointers.data(), environment_pointers.data(), parent, log);
      const std::string reason = child < 0 ? std::strerror(errno) : "";
      if (log >= 0) ::close(log);
      if (child < 0) return fail_environment("rank " + std::to_string(rank), "cannot be started: " + reason);
      processes_.push_back(child);
    }
    stopped_.assign(processes_.size(), 0);
    return {};
  }

  /// Takes note of those that have ended or were stopped. What is new of a failure, as "rank 1: …"; else empty.
  std::string reap() {
    std::string news;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      if (processes_[rank] < 0 || waitpid(processes_[rank], &status, WNOHANG | WUNTRACED) != processes_[rank]) continue;
      if (WIFSTOPPED(status)) {
        stopped_[rank] = WSTOPSIG(status);
        continue;
      }
      processes_[rank] = -1;
      if (status == 0) continue;
      const bool by_signal = WIFSIGNALED(status);
      if (ending_ && by_signal) continue; // ours
      // One that a signal ended died before those that noticed it, even if they were seen first.
      if (!failed_.empty() && !(by_signal && !failed_by_signal_)) continue;
      failed_by_signal_ = by_signal;
      failed_ = "rank " + std::to_string(rank) + ": " + ending(status);
      news = failed_;
    }
    return news;
  }
  [[nodiscard]] bool running() const {
    return std::any_of(processes_.begin(), processes_.end(), [](pid_t process) { return process > 0; });
  }
  void signal_all(int number) {
    ending_ = true;
    for (const pid_t process : processes_)
      if (process > 0) kill(process, number);
  }
  /// Who failed first, and how; empty: nobody. A stopped rank is no failure, but explains one.
  [[nodiscard]] bool certain() const { ///< by a signal: not because of another rank
    return failed_by_signal_ || std::any_of(stopped_.begin(), stopped_.end(), [](int number) { return number != 0; });
  }
  [[nodiscard]] std::string failed() const {
    if (failed_.empty() || failed_by_signal_) return failed_;
    for (std::size_t rank = 0; rank < stopped_.size(); ++rank)
      if (stopped_[rank] != 0)
        return "rank " + std::to_string(rank) + ": was stopped by " + signal_text(stopped_[rank]);
    return failed_;
  }

private:
  std::vector<pid_t> processes_; ///< −1 once ended
  std::vector<int> stopped_;     ///< signal that stopped it; 0: none did
  std::string failed_;
  bool failed_by_signal_ = false;
  bool ending_ = false; ///< we ended them: what they say now is no cause
};

/// Blocked while ranks run, so that they are waited for and not lost.
sigset_t watched_signals() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&watched, number);
  return watched;
}

} // namespace

Result<void> launch_local(const LocalLaunch& launch, const LaunchHooks& hooks) {
  const sigset_t watched = watched_signals();
  sigprocmask(SIG_BLOCK, &watched, nullptr);
  Children children;
  if (auto started = children.start(launch); !started) return started;
  hooks.started();
  constexpr timespec kTick{0, 30'000'000};
  std::optional<Clock::time_point> deadline;
  bool interrupted = false;
  std::string given_up;
  while (true) {
    const int signal = sigtimedwait(&watched, nullptr, &kTick);
    if ((signal == SIGINT || signal == SIGTERM) && !interrupted) {
      interrupted = true;
      children.signal_all(SIGTERM);
      deadline = Clock::now() + launch.grace;
    }
    if (const std::string news = children.reap(); !news.empty()) hooks.failed(news);
    hooks.watch();
    if (!children.running()) break;
    if (given_up.empty()) given_up = hooks.given_up();
    if ((!children.failed().empty() || !given_up.empty()) && !deadline) deadline = Clock::now() + launch.grace;
    if (deadline && Clock::now() > *deadline) children.signal_all(SIGKILL);
  }
  if (interrupted)
    return tl::unexpected<Error>(Error{Error::Kind::cancelled, "interrupted; the steps done so far are kept", "", ""});
  const std::string why = children.certain() || given_up.empty() ? children.failed() : given_up;
  if (why.empty()) return {};
  return fail_environment("", why + "; the other ranks were ended");
}

} // namespace foretrain
