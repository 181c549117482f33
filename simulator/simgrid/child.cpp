#include "simulator/simgrid/child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace foretrain {
namespace {

[[noreturn]] void run_and_exit(const std::function<std::string()>& work, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string text = work();
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(out, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(2);
    written += static_cast<std::size_t>(n);
  }
  ::_exit(0); // no destructors, no buffers of the parent
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

} // namespace

Result<std::string> run_in_child(const std::function<std::string()>& work, int owner_fd) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return fail_environment("simulation", fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return fail_environment("simulation", fmt::format("fork: {}", std::strerror(errno)));
  }
  if (pid == 0) {
    ::close(ends[0]);
    run_and_exit(work, ends[1]);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 65536> buffer{};
  bool abandoned = false;
  while (true) {
    std::array<pollfd, 2> fds{pollfd{ends[0], POLLIN, 0}, pollfd{owner_fd, 0, 0}};
    if (::poll(fds.data(), owner_fd >= 0 ? 2 : 1, -1) < 0 && errno != EINTR) break;
    if (owner_fd >= 0 && (fds[1].revents & (POLLHUP | POLLERR)) != 0) {
      abandoned = true;
      ::kill(pid, SIGKILL);
      break;
    }
    if (fds[0].revents == 0) continue;
    const ssize_t n = ::read(ends[0], buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  const int status = wait_for(pid);
  if (abandoned) return fail_environment("simulation", "abandoned by its owner");
  if (WIFSIGNALED(status))
    return fail_environment("simulation", fmt::format("the simulation died of signal {}", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    return fail_environment("simulation", fmt::format("the simulation ended with status {}", WEXITSTATUS(status)));
  return text;
}

} // namespace foretrain
