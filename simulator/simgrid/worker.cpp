// foretrain-sim-worker: reads requests from stdin, one JSON document per line, and answers each on stdout. Every
// simulation runs in a child of its own: SimGrid's clock and signals are never reset, and a modelling mistake aborts.

#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <string>
#include <string_view>

#include <unistd.h>

#include "core/base/json.h"
#include "simulator/simgrid/child.h"
#include "simulator/simgrid/engine.h"
#include "simulator/simgrid/protocol.h"
#include "simulator/simgrid/simulate.h"

namespace foretrain {
namespace {

bool write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

/// The id of a request that could not be read, so that the reply can be matched; 0 when there is none.
std::int64_t id_of_request(std::string_view line) {
  const Result<Json> json = parse_json(line, "request");
  if (!json || !json->is_object() || !json->contains("id") || !(*json)["id"].is_number_integer()) return 0;
  return (*json)["id"].get<std::int64_t>();
}

std::string simulate_line(std::string_view line) {
  try {
    const Result<SimulationRequest> request = request_from(line);
    if (!request) return reply_line(id_of_request(line), tl::unexpected<Error>(request.error()));
    return reply_line(request->id, simulate_request(*request));
  } catch (const std::exception& problem) {
    return reply_line(id_of_request(line), fail_environment("simulation", problem.what()));
  }
}

bool answer(std::string_view line) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return true;
  if (line.size() > kMaximumJsonBytes)
    return write_all(reply_line(0, fail("request", "the request is larger than 64 MiB")));
  const Result<std::string> reply = run_in_child([line] { return simulate_line(line); }, STDOUT_FILENO);
  if (reply) return write_all(*reply);
  return write_all(reply_line(id_of_request(line), tl::unexpected<Error>(reply.error())));
}

int serve() {
  std::string pending;
  std::array<char, 65536> buffer{};
  bool too_long = false;
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return 1;
    if (n == 0) return pending.empty() || answer(pending) ? 0 : 1;
    pending.append(buffer.data(), static_cast<std::size_t>(n));
    std::size_t start = 0;
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n', start)) {
      if (!too_long && !answer(std::string_view(pending).substr(start, end - start))) return 1;
      too_long = false;
      start = end + 1;
    }
    pending.erase(0, start);
    if (pending.size() <= kMaximumJsonBytes) continue;
    // Answered once; the rest of the line is skipped.
    if (!too_long && !write_all(reply_line(0, fail("request", "the request is larger than 64 MiB")))) return 1;
    too_long = true;
    pending.clear();
  }
}

} // namespace
} // namespace foretrain

int main(int count, char** arguments) {
  if (count > 1) {
    const std::string_view argument = arguments[1];
    const std::string text = argument == "--version"
                                 ? "foretrain-sim-worker, SimGrid " + foretrain::simgrid_version() + "\n"
                                 : "foretrain-sim-worker reads simulation requests from stdin, one JSON document per "
                                   "line; `foretrain` starts it.\n";
    return foretrain::write_all(text) && (argument == "--version" || argument == "--help") ? 0 : 1;
  }
  std::signal(SIGPIPE, SIG_IGN);
  return foretrain::serve();
}
