#include "executor/rank_guard.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include <unistd.h>

#include "executor/run.h"

namespace foretrain {
namespace {

constexpr int kFailed = 1;
constexpr std::chrono::milliseconds kOwnWords{300}; ///< for the main thread to notice by itself

} // namespace

RankGuard::RankGuard(const Program& program, int rank, std::filesystem::path out)
    : rank_(rank), out_(std::move(out)),
      places_(places_of(program, program.roles[static_cast<std::size_t>(program.mesh.coordinate(rank, Axis::pp))])) {}

Result<void> RankGuard::watch(const RendezvousPlace& place) {
  FORETRAIN_TRY(watch_, RankWatch::start(place, [this](const std::string& why) { abort(why); }));
  return {};
}

void RankGuard::write(const std::string& what) const {
  (void)append_line(out_, Json{{"rank", rank_}, {"error", what}});
  std::fprintf(stderr, "foretrain-run: %s\n", what.c_str());
  std::fflush(stderr);
}

void RankGuard::fail(const std::string& what) {
  if (said_.exchange(true)) // the watch has spoken and ends the process
    std::this_thread::sleep_for(std::chrono::seconds(10));
  if (watch_) watch_->fail(what);
  write(what);
}

/// "rank 0, step 3: forward of …".
std::string RankGuard::position() const {
  const std::int64_t progress = progress_.load(std::memory_order_relaxed);
  std::string text = "rank " + std::to_string(rank_);
  if (progress < 0) return text + ", before the first step";
  const auto op = static_cast<std::size_t>(progress & 0xffffffff);
  text += ", step " + std::to_string(progress >> 32);
  return op < places_.size() ? text + ": " + to_string(places_[op]) : text;
}

/// On the watch's thread.
void RankGuard::abort(const std::string& why) {
  std::this_thread::sleep_for(kOwnWords);
  if (said_.exchange(true)) { // the main thread has noticed and is on its way out
    std::this_thread::sleep_for(std::chrono::seconds(2));
  } else {
    write(position() + ": given up, because of " + why);
  }
  _exit(kFailed); // the main thread may wait for ever for a peer that is gone
}

} // namespace foretrain
