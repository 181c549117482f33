#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/program/places.h"
#include "executor/rendezvous/client.h"

namespace foretrain {

/// Sees to it that a rank whose peers are gone ends, whatever its main thread waits for, and says once at which op.
class RankGuard {
public:
  RankGuard(const Program& program, int rank, std::filesystem::path out);
  /// Errors: those of RankWatch::start.
  [[nodiscard]] Result<void> watch(const RendezvousPlace& place);

  /// For RankOptions::progress.
  [[nodiscard]] std::atomic<std::int64_t>* progress() { return &progress_; }
  /// The rank is done; what becomes of the others is not its business any more.
  void leave() { watch_.reset(); }
  /// The rank gives up by itself: tells the others, and writes it down.
  void fail(const std::string& what);

private:
  void abort(const std::string& why);
  void write(const std::string& what) const;
  [[nodiscard]] std::string position() const;

  int rank_;
  std::filesystem::path out_;
  std::vector<OpPlace> places_;
  std::atomic<std::int64_t> progress_{-1};
  std::atomic<bool> said_{false};
  std::unique_ptr<RankWatch> watch_;
};

} // namespace foretrain
