#pragma once

#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "planner/best.h"

namespace foretrain {

/// The best layouts so far, shared by the threads of a search: what is shown while it runs.
class SoFar {
public:
  /// Keeps the best `limit`; 0: none.
  explicit SoFar(std::size_t limit)
      : best_(limit),
        worst_(limit > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity()) {}

  /// Most layouts are worse than all that are kept: these cost a comparison.
  void add(const Found& found, const Layout& layout) {
    if (!(found.value <= worst_.load(std::memory_order_relaxed))) return;
    const std::lock_guard lock(mutex_);
    Entry entry{found, {}};
    if (!best_.takes(entry)) return;
    entry.layout = layout;
    best_.add(std::move(entry));
    changed_ = true;
    if (best_.full()) worst_.store(best_.last().found.value, std::memory_order_relaxed);
  }

  /// Puts them into `kept`, the best first. False: nothing is new since the last time.
  [[nodiscard]] bool take(SearchResult& into) {
    std::optional<Best<Entry>> copy;
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(changed_, false)) return false;
      copy = best_;
    }
    into.complete = false;
    for (Entry& entry : std::move(*copy).sorted()) {
      Candidate candidate;
      candidate.layout = std::move(entry.layout);
      candidate.slots = entry.found.slots;
      into.kept.push_back(std::move(candidate));
    }
    return true;
  }

private:
  struct Entry {
    Found found;
    Layout layout;
    friend bool operator<(const Entry& a, const Entry& b) { return a.found < b.found; }
  };
  std::mutex mutex_;
  Best<Entry> best_;
  bool changed_ = false;
  std::atomic<double> worst_; ///< a layout of a greater value is not kept
};

} // namespace foretrain
