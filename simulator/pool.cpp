#include "simulator/pool.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace foretrain {
namespace {

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with status {}", WIFEXITED(status) ? WEXITSTATUS(status) : status);
}

int reap(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

} // namespace

WorkerPool::~WorkerPool() {
  for (Worker& worker : workers_) end(worker);
}

void WorkerPool::end(Worker& worker) {
  if (worker.pid < 0) return;
  ::kill(worker.pid, SIGKILL);
  ::close(worker.socket);
  reap(worker.pid);
  worker = Worker{};
}

Result<WorkerPool::Worker> WorkerPool::start() const {
  const std::string path = options_.worker.string();
  if (::access(path.c_str(), X_OK) != 0)
    return fail_environment(path, fmt::format("the simulation worker cannot be started: {}", std::strerror(errno)));
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail_environment(path, fmt::format("socketpair: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string name = path;
  std::array<char*, 2> arguments{name.data(), nullptr};
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, path.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    return fail_environment(path, fmt::format("the simulation worker cannot be started: {}", std::strerror(failed)));
  }
  ::fcntl(ends[0], F_SETFL, ::fcntl(ends[0], F_GETFL) | O_NONBLOCK);
  Worker worker;
  worker.pid = pid;
  worker.socket = ends[0];
  return worker;
}

std::vector<Result<Simulation>> WorkerPool::run(const std::vector<SimulationRequest>& requests,
                                                const std::atomic<bool>* stop,
                                                const std::function<void(std::size_t)>& done) {
  std::vector<Result<Simulation>> results(
      requests.size(), tl::unexpected<Error>(Error{Error::Kind::cancelled, "the simulation was stopped", "", ""}));
  std::size_t next = 0;
  std::size_t finished = 0;
  const auto finish = [&](Worker& worker, Result<Simulation> result) {
    const auto number = static_cast<std::size_t>(worker.request);
    worker.request = -1;
    results[number] = std::move(result);
    ++finished;
    if (done) done(number);
  };
  const auto lose = [&](Worker& worker, const std::string& why) {
    ::kill(worker.pid, SIGKILL);
    ::close(worker.socket);
    const int status = reap(worker.pid);
    if (worker.request >= 0)
      finish(worker, fail_environment("simulation", fmt::format("the simulation worker {}",
                                                                why.empty() ? how_it_ended(status) : why)));
    worker = Worker{};
  };

  const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(1, options_.workers)), requests.size());
  if (workers_.size() < wanted) workers_.resize(wanted);
  std::vector<pollfd> fds;
  std::array<char, 65536> buffer{};
  while (finished < requests.size()) {
    if (stop != nullptr && stop->load()) {
      for (Worker& worker : workers_) end(worker);
      return results;
    }
    for (std::size_t w = 0; w < wanted; ++w) {
      Worker& worker = workers_[w];
      if (worker.request >= 0 || next == requests.size()) continue;
      int status = 0;
      if (worker.pid >= 0 && ::waitpid(worker.pid, &status, WNOHANG) == worker.pid) {
        ::close(worker.socket); // it died while idle: nobody's loss
        worker = Worker{};
      }
      if (worker.pid < 0) {
        Result<Worker> started = start();
        if (!started) { // nobody to ask: every candidate left has this error
          for (; next < requests.size(); ++next, ++finished) results[next] = tl::unexpected<Error>(started.error());
          break;
        }
        worker = std::move(*started);
      }
      worker.request = static_cast<std::ptrdiff_t>(next);
      worker.deadline = clock_seconds() + options_.limit_seconds;
      SimulationRequest request = requests[next++];
      request.id = worker.request;
      worker.outgoing = request_line(request);
    }
    fds.clear();
    for (const Worker& worker : workers_)
      fds.push_back({worker.pid >= 0 && worker.request >= 0 ? worker.socket : -1,
                     static_cast<short>(POLLIN | (worker.outgoing.empty() ? 0 : POLLOUT)), 0});
    constexpr int kStopCheckMilliseconds = 50;
    ::poll(fds.data(), fds.size(), kStopCheckMilliseconds);
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      Worker& worker = workers_[w];
      if (worker.request < 0) continue;
      if ((fds[w].revents & POLLOUT) != 0 && !worker.outgoing.empty()) {
        const ssize_t n = ::send(worker.socket, worker.outgoing.data(), worker.outgoing.size(), MSG_NOSIGNAL);
        if (n > 0) worker.outgoing.erase(0, static_cast<std::size_t>(n));
      }
      if ((fds[w].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        const ssize_t n = ::recv(worker.socket, buffer.data(), buffer.size(), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
          lose(worker, "");
          continue;
        }
        if (n > 0) worker.incoming.append(buffer.data(), static_cast<std::size_t>(n));
        const std::size_t line = worker.incoming.find('\n');
        if (line != std::string::npos) {
          Result<Reply> reply = reply_from(std::string_view(worker.incoming).substr(0, line));
          worker.incoming.clear();
          if (!reply || reply->id != worker.request) {
            lose(worker, "sent something that is not a reply");
            continue;
          }
          finish(worker, std::move(reply->result));
        }
      }
      if (worker.request >= 0 && clock_seconds() > worker.deadline)
        lose(worker, fmt::format("took more than {} s", options_.limit_seconds));
    }
  }
  return results;
}

std::filesystem::path worker_beside_program() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (error ? std::filesystem::path() : self.parent_path()) / "foretrain-sim-worker";
}

} // namespace foretrain
