#include "simulator/slot_fold.h"

#include <unordered_map>
#include <utility>

namespace foretrain {
namespace {

/// What decides the memory of a stage: per chunk, forwards without I (or B), I without W, and whether the first forward
/// and the last backward, which may differ from the others, have run. Compared by value; the hash only finds
/// candidates.
class State {
public:
  explicit State(std::size_t chunks) : entries_(3 * chunks, 0) {}

  void apply(const StepKind& kind) {
    const std::size_t chunk = 3 * std::size_t{kind.chunk};
    switch (kind.source) {
    case StepSource::first_forward:
      add(chunk + 2, 1);
      [[fallthrough]];
    case StepSource::forward:
      add(chunk, 1);
      break;
    case StepSource::last_backward:
      add(chunk + 2, 2);
      [[fallthrough]];
    case StepSource::backward:
      add(chunk, -1);
      break;
    case StepSource::input:
      add(chunk, -1);
      add(chunk + 1, 1);
      break;
    case StepSource::last_weight:
      add(chunk + 2, 2);
      [[fallthrough]];
    case StepSource::weight:
      add(chunk + 1, -1);
      break;
    case StepSource::wait:
    case StepSource::transfer_next:
    case StepSource::transfer_prev:
    case StepSource::transfer_both:
      break;
    }
  }
  std::uint64_t hash() const { return hash_; }
  bool operator==(const State&) const = default;

private:
  void add(std::size_t entry, int amount) {
    entries_[entry] += amount;
    hash_ += static_cast<std::uint64_t>(amount) * weight(entry);
  }
  /// splitmix64 of the entry's index.
  static std::uint64_t weight(std::size_t entry) {
    std::uint64_t x = (entry + 1) * 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return (x ^ (x >> 31)) | 1;
  }

  std::vector<std::int32_t> entries_;
  std::uint64_t hash_ = 0;
};

/// (state, kind) pairs met so far.
class Seen {
public:
  /// True when this pair had not been inserted.
  bool insert(const State& state, std::uint32_t kind) {
    const std::uint64_t key = state.hash() ^ (std::uint64_t{kind} * 0xd6e8feb86659fd93ULL);
    const auto [place, fresh] = pairs_.try_emplace(key, state, kind);
    // Two pairs with one hash: the second counts as new each time it comes, which only makes the fold longer.
    return fresh || !(place->second == std::pair(state, kind));
  }

private:
  std::unordered_map<std::uint64_t, std::pair<State, std::uint32_t>> pairs_;
};

struct Visit {
  std::uint32_t slot = 0;
  std::uint32_t kind = 0;
  InFlight in_flight;
};

/// Slots with equal memory: what ran before one does not matter.
std::uint32_t memory_kind(const SlotOrder& order, std::uint32_t kind, InFlight in_flight) {
  constexpr std::uint32_t kMost = 8; ///< more than a batch ever holds
  const std::uint32_t ahead = kMost + static_cast<std::uint32_t>(order.shape.turn());
  const StepKind& step = order.kinds[kind];
  const std::uint32_t slot =
      static_cast<std::uint32_t>(step.source) * static_cast<std::uint32_t>(order.shape.chunks) + step.chunk;
  return (slot * ahead + in_flight.beside) * kMost + in_flight.after;
}

std::vector<Visit> cut_loops(const SlotOrder& order, std::size_t stage) {
  const std::size_t chunks = static_cast<std::size_t>(order.shape.chunks);
  std::vector<Visit> kept;
  std::vector<State> trail; ///< states since the last new pair: trail[t] is the state after kept[base + t - 1]
  std::size_t base = 0;
  State state(chunks);
  Seen seen;
  const std::uint32_t slots = order.offset[stage + 1] - order.offset[stage];
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const std::uint32_t kind = order.kind[order.step_of[order.offset[stage] + slot]];
    const InFlight in_flight = order.in_flight[order.offset[stage] + slot];
    const bool fresh = seen.insert(state, memory_kind(order, kind, in_flight));
    kept.push_back({slot, kind, in_flight});
    state.apply(order.kinds[kind]);
    if (fresh) {
      trail.clear();
      base = kept.size();
    } else {
      for (std::size_t t = 0; t < trail.size(); ++t)
        if (trail[t].hash() == state.hash() && trail[t] == state) {
          trail.resize(t, State(chunks));
          kept.resize(base + t);
          break;
        }
    }
    trail.push_back(state);
  }
  return kept;
}

} // namespace

void make_fold(SlotOrder& order) {
  order.fold_offset.assign(1, 0);
  for (std::size_t stage = 0; stage < order.stages(); ++stage) {
    for (const Visit& visit : cut_loops(order, stage)) {
      order.fold_slot.push_back(visit.slot);
      order.fold_kind.push_back(visit.kind);
      order.fold_in_flight.push_back(visit.in_flight);
    }
    order.fold_offset.push_back(static_cast<std::uint32_t>(order.fold_slot.size()));
  }
}

} // namespace foretrain
