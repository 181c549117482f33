#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "planner/evaluate.h"
#include "planner/layouts.h"
#include "planner/search.h"

/// What a search keeps while it runs: small entries; a layout is made from its position at the end.
namespace foretrain {

struct Found {
  double value = 0; ///< of the objective, smaller is better
  LayoutPosition position;
  Evaluation slots;
  /// Better value first, then more memory headroom, then enumeration order.
  friend bool operator<(const Found& a, const Found& b) {
    if (a.value != b.value) return a.value < b.value;
    if (a.slots.device_bytes != b.slots.device_bytes) return a.slots.device_bytes < b.slots.device_bytes;
    return a.position < b.position;
  }
};

struct Missed {
  double excess = 0; ///< how far beyond the limit, relative
  LayoutPosition position;
  NearMiss miss;
  friend bool operator<(const Missed& a, const Missed& b) {
    return a.excess != b.excess ? a.excess < b.excess : a.position < b.position;
  }
};

/// Keeps the smallest `limit` entries of what is added.
template <class T> class Best {
public:
  explicit Best(std::size_t limit) : limit_(limit) {}
  /// Whether `entry` is among the smallest so far.
  [[nodiscard]] bool takes(const T& entry) const {
    return limit_ > 0 && (heap_.size() < limit_ || entry < heap_.front());
  }
  [[nodiscard]] bool full() const { return heap_.size() >= limit_; }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  /// The largest that is kept. There is one.
  [[nodiscard]] const T& last() const { return heap_.front(); }
  void add(T entry) {
    if (!takes(entry)) return;
    if (heap_.size() == limit_) {
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.back() = std::move(entry);
    } else {
      heap_.push_back(std::move(entry));
    }
    std::push_heap(heap_.begin(), heap_.end());
  }
  void merge(Best&& other) {
    for (T& entry : other.heap_) add(std::move(entry));
  }
  [[nodiscard]] std::vector<T> sorted() && {
    std::sort(heap_.begin(), heap_.end());
    return std::move(heap_);
  }

private:
  std::size_t limit_;
  std::vector<T> heap_;
};

/// Step time against device memory: no other layout is better in both.
class Front {
public:
  void add(const Found& found) {
    const auto at = std::lower_bound(list_.begin(), list_.end(), found, before);
    if (at != list_.begin() && std::prev(at)->slots.device_bytes <= found.slots.device_bytes) return;
    auto end = at;
    while (end != list_.end() && end->slots.device_bytes >= found.slots.device_bytes) ++end;
    list_.insert(list_.erase(at, end), found);
  }
  [[nodiscard]] const std::vector<Found>& list() const { return list_; }
  /// Whether another layout is better in one and no worse in the other than any that takes at least this much.
  [[nodiscard]] bool beats(const Floor& floor) const {
    const auto after =
        std::upper_bound(list_.begin(), list_.end(), floor.step_seconds,
                         [](double seconds, const Found& found) { return seconds < found.slots.step_seconds; });
    if (after == list_.begin()) return false;
    const Evaluation& slots = std::prev(after)->slots; // the smallest of those that are not slower
    return slots.device_bytes < floor.device_bytes ||
           (slots.device_bytes == floor.device_bytes && slots.step_seconds < floor.step_seconds);
  }

private:
  static bool before(const Found& a, const Found& b) {
    if (a.slots.step_seconds != b.slots.step_seconds) return a.slots.step_seconds < b.slots.step_seconds;
    if (a.slots.device_bytes != b.slots.device_bytes) return a.slots.device_bytes < b.slots.device_bytes;
    return a.position < b.position;
  }
  std::vector<Found> list_;
};

} // namespace foretrain
