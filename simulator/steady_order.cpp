#include "simulator/steady_order.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace foretrain {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;

/// What a step needs: the `done`-th step of another stage (1 is its first, 0 its start).
struct Need {
  std::uint32_t stage = kNone;
  std::uint32_t done = 0;
};

/// An order taken apart: each stage's steps with what they need.
struct Lines {
  explicit Lines(const SlotOrder& order) : steps(order.stages()) {
    const std::size_t first = order.first_step();
    std::vector<Need> place(order.kind.size()); // of each step: its stage and how many are done with it
    for (std::uint32_t k = 0; k < order.kind.size(); ++k) {
      const std::uint32_t stage = order.kinds[order.kind[k]].stage;
      steps[stage].push_back(k);
      place[k] = {stage, static_cast<std::uint32_t>(steps[stage].size())};
      const std::uint32_t after = order.after[k];
      needs.push_back(after >= first ? place[after - first] : after < order.stages() ? Need{after, 0} : Need{});
    }
  }
  std::vector<std::vector<std::uint32_t>> steps; ///< per stage: indices into the order
  std::vector<Need> needs;                       ///< per step of the order
};

/// One try to write an order with rounds of `per_round` micro-batches.
class Attempt {
public:
  Attempt(const SlotOrder& order, const SlotOrder& longer, int per_round)
      : order_(order), longer_(longer), lines_(order), more_(longer),
        stages_(static_cast<std::uint32_t>(order.stages())), length_(stages_), first_(stages_), end_(stages_),
        cut_(stages_) {
    result_.shape = order.shape;
    result_.per_round = per_round;
    for (std::uint32_t s = 0; s < stages_; ++s)
      length_[s] = static_cast<std::uint32_t>(more_.steps[s].size() - lines_.steps[s].size());
  }

  std::optional<SteadyOrder> run() {
    if (!find_repetition() || !align() || !find_rounds() || !one_more_is_longer()) return std::nullopt;
    result_.kinds = order_.kinds;
    write();
    return std::move(result_);
  }

private:
  [[nodiscard]] std::uint32_t step(std::uint32_t stage, std::uint32_t index) const {
    return lines_.steps[stage][index];
  }
  [[nodiscard]] const Need& need(std::uint32_t stage, std::uint32_t index) const {
    return lines_.needs[step(stage, index)];
  }

  /// The step one round later is of the same kind and needs what is one round later.
  [[nodiscard]] bool repeats(std::uint32_t stage, std::uint32_t index) const {
    const std::uint32_t next = index + length_[stage];
    if (order_.kind[step(stage, index)] != order_.kind[step(stage, next)]) return false;
    const Need& here = need(stage, index);
    const Need& there = need(stage, next);
    return here.stage == there.stage && (here.stage == kNone || there.done == here.done + length_[here.stage]);
  }

  /// Per stage, the longest run of steps that repeat: [first, end) holds whole rounds from any place on.
  bool find_repetition() {
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const auto count = static_cast<std::uint32_t>(lines_.steps[s].size());
      if (length_[s] == 0 || length_[s] >= count) return false;
      std::uint32_t longest = 0;
      std::uint32_t begin = 0;
      for (std::uint32_t i = 0; i + length_[s] < count; ++i) {
        if (!repeats(s, i)) {
          begin = i + 1;
        } else if (i + 1 - begin > longest) {
          longest = i + 1 - begin;
          first_[s] = begin;
          end_[s] = i + 1 + length_[s];
        }
      }
      if (longest == 0) return false;
    }
    return true;
  }

  /// Raises where rounds begin until nothing before them, and nothing in the first, needs what comes later.
  bool align() {
    cut_ = first_;
    for (bool again = true; again;) {
      again = false;
      for (std::uint32_t s = 0; s < stages_; ++s) {
        if (cut_[s] + length_[s] > end_[s]) return false;
        for (std::uint32_t i = 0; i < cut_[s] + length_[s]; ++i) {
          const Need& n = need(s, i);
          if (n.stage == kNone) continue;
          const std::uint32_t reach = cut_[n.stage] + (i < cut_[s] ? 0 : length_[n.stage]);
          if (n.done <= reach) continue;
          cut_[n.stage] += n.done - reach;
          again = true;
        }
      }
    }
    return true;
  }

  /// Rounds that what `index` of the stage needs lies before the round that begins at `begin`.
  [[nodiscard]] int looks_back(const Need& n, const std::vector<std::uint32_t>& begin) const {
    if (n.stage == kNone || n.done > begin[n.stage]) return 0;
    return static_cast<int>((begin[n.stage] - n.done) / length_[n.stage]) + 1;
  }

  bool find_rounds() {
    std::uint32_t all = kNone; // whole rounds from the cut on
    for (std::uint32_t s = 0; s < stages_; ++s) all = std::min(all, (end_[s] - cut_[s]) / length_[s]);
    for (std::uint32_t s = 0; s < stages_; ++s)
      for (std::uint32_t i = cut_[s]; i < cut_[s] + length_[s]; ++i)
        result_.window = std::max(result_.window, looks_back(need(s, i), cut_));
    last_ = cut_;
    for (std::uint32_t s = 0; s < stages_; ++s) last_[s] += all * length_[s];
    for (std::uint32_t s = 0; s < stages_; ++s)
      for (std::uint32_t i = last_[s]; i < lines_.steps[s].size(); ++i)
        result_.window = std::max(result_.window, looks_back(need(s, i), last_));
    result_.rounds = static_cast<int>(all) - result_.window;
    return result_.rounds >= 1;
  }

  /// The order with one more round is that of `per_round` more micro-batches.
  [[nodiscard]] bool one_more_is_longer() const {
    const auto same = [&](std::uint32_t stage, std::uint32_t index, std::uint32_t in_longer, bool later) {
      StepKind here = order_.kinds[order_.kind[step(stage, index)]];
      const std::uint32_t other = more_.steps[stage][in_longer];
      StepKind there = longer_.kinds[longer_.kind[other]];
      here.count = there.count = 0;
      if (!(here == there)) return false;
      const Need& a = need(stage, index);
      const Need& b = more_.needs[other];
      return a.stage == b.stage && (a.stage == kNone || a.done + (later ? length_[a.stage] : 0) == b.done);
    };
    for (std::uint32_t s = 0; s < stages_; ++s) {
      for (std::uint32_t i = 0; i < last_[s]; ++i)
        if (!same(s, i, i, false)) return false;
      for (std::uint32_t i = last_[s] - length_[s]; i < lines_.steps[s].size(); ++i)
        if (!same(s, i, i + length_[s], true)) return false;
    }
    return true;
  }

  /// Appends the steps [from, to) of all stages in the order of the whole.
  void append(SteadySteps& into, const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) {
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t s = 0; s < stages_; ++s)
      for (std::uint32_t i = from[s]; i < to[s]; ++i) chosen.push_back(step(s, i));
    std::sort(chosen.begin(), chosen.end());
    for (const std::uint32_t k : chosen)
      append(into, order_.kinds[order_.kind[k]].stage, order_.kind[k], lines_.needs[k]);
  }
  void append(SteadySteps& into, std::uint32_t stage, std::uint32_t kind, const Need& n) {
    const auto here = static_cast<std::uint32_t>(written_);
    const std::vector<std::uint32_t>& own = placed_[stage];
    into.kind.push_back(kind);
    if (n.stage != kNone)
      into.back.push_back(n.done > 0 ? here - placed_[n.stage][n.done - 1] : here + 2 + n.stage);
    else
      into.back.push_back(own.empty() ? here + 1 : here - own.back());
    placed_[stage].push_back(here);
    ++written_;
  }

  /// Everything in one line: what is before, window rounds and one more in equal order, the rest of the rounds, the
  /// end.
  void write() {
    placed_.assign(stages_, {});
    append(result_.before, std::vector<std::uint32_t>(stages_, 0), cut_);
    std::vector<std::uint32_t> at = cut_;
    const auto one_round = [&](SteadySteps& into) {
      // Sorted as the first round, so that all rounds are in one order.
      std::vector<std::pair<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>> chosen;
      for (std::uint32_t s = 0; s < stages_; ++s)
        for (std::uint32_t i = 0; i < length_[s]; ++i) chosen.push_back({step(s, cut_[s] + i), {s, at[s] + i}});
      std::sort(chosen.begin(), chosen.end());
      for (const auto& [sorted_by, place] : chosen)
        append(into, place.first, order_.kind[step(place.first, place.second)], need(place.first, place.second));
      for (std::uint32_t s = 0; s < stages_; ++s) at[s] += length_[s];
    };
    for (int i = 0; i < result_.window; ++i) one_round(result_.before);
    one_round(result_.round);
    SteadySteps rest;
    for (int i = 1; i < result_.rounds; ++i) one_round(rest);
    std::vector<std::uint32_t> ends(stages_);
    for (std::uint32_t s = 0; s < stages_; ++s) ends[s] = static_cast<std::uint32_t>(lines_.steps[s].size());
    append(result_.after, last_, ends);
  }

  const SlotOrder& order_;
  const SlotOrder& longer_;
  Lines lines_;
  Lines more_;
  std::uint32_t stages_;
  std::vector<std::uint32_t> length_; ///< steps of a round
  std::vector<std::uint32_t> first_;  ///< first step that repeats
  std::vector<std::uint32_t> end_;    ///< after the last repetition
  std::vector<std::uint32_t> cut_;    ///< where rounds begin
  std::vector<std::uint32_t> last_;   ///< where they end
  std::size_t written_ = 0;
  std::vector<std::vector<std::uint32_t>> placed_; ///< per stage: where its steps were written
  SteadyOrder result_;
};

/// Micro-batches by which a round is longer: a group with several chunks, else one.
int round_of(const ScheduleShape& shape) {
  return shape.chunks == 1 ? 1 : shape.turn();
}

} // namespace

std::optional<SteadyOrder> make_steady_order(const Schedule& schedule, const ScheduleShape& shape, bool blocking,
                                             bool remembers) {
  const int per_round = round_of(shape);
  ScheduleShape few = shape;
  // The fewest micro-batches that hold rounds are not known beforehand: about as many as stages, twice that with
  // chunks.
  const int least = schedule.by_cost()  ? kSettledRounds * shape.stages
                    : shape.chunks == 1 ? shape.stages + 1
                                        : 2 * per_round;
  const int step = shape.chunks == 1 ? std::max(2, shape.stages / 2) : per_round;
  const int most = 6 * std::max(shape.stages, per_round) + 8;
  for (int wanted = least; wanted <= most; wanted += step) {
    few.micro_batches = wanted + ((shape.micro_batches - wanted) % per_round + per_round) % per_round;
    ScheduleShape longer = few;
    longer.micro_batches += per_round;
    if (few.micro_batches > shape.micro_batches) return std::nullopt;
    if (schedule.legal(few) || schedule.legal(longer)) continue;
    const SlotOrder order = make_slot_order(schedule, few, blocking, remembers);
    if (auto found = Attempt(order, make_slot_order(schedule, longer, blocking, remembers), per_round).run())
      return found;
  }
  return std::nullopt;
}

SteadyOrder without_rounds(const SlotOrder& order) {
  SteadyOrder whole;
  whole.shape = order.shape;
  whole.kinds = order.kinds;
  std::vector<std::uint32_t> last(order.stages(), kNone); // step of each stage so far
  for (std::uint32_t k = 0; k < order.kind.size(); ++k) {
    const std::uint32_t stage = order.kinds[order.kind[k]].stage;
    const std::uint32_t after = order.after[k];
    const auto first = static_cast<std::uint32_t>(order.first_step());
    whole.before.kind.push_back(order.kind[k]);
    if (after >= first)
      whole.before.back.push_back(k - (after - first));
    else if (after < order.stages())
      whole.before.back.push_back(k + 2 + after);
    else
      whole.before.back.push_back(last[stage] == kNone ? k + 1 : k - last[stage]);
    last[stage] = k;
  }
  return whole;
}

const SteadyOrder& SteadyTable::get(const Schedule& schedule, const ScheduleShape& shape, bool blocking,
                                    bool remembers) {
  const Key by_rest{schedule.id(), shape.stages, shape.chunks, shape.turn(), shape.micro_batches % round_of(shape),
                    shape.weights, blocking,     remembers};
  const Key by_number{schedule.id(),       shape.stages,  shape.chunks, shape.turn(),
                      shape.micro_batches, shape.weights, blocking,     remembers};
  bool known = false;
  {
    const std::shared_lock lock(mutex_);
    const auto steady = steady_.find(by_rest);
    known = steady != steady_.end();
    if (known && steady->second && steady->second->shape.micro_batches <= shape.micro_batches) return *steady->second;
    if (const auto whole = whole_.find(by_number); known && whole != whole_.end()) return *whole->second;
  }
  const auto keep = [&](Orders& orders, const Key& key,
                        std::unique_ptr<const SteadyOrder> order) -> const SteadyOrder* {
    const std::unique_lock lock(mutex_);
    return orders.try_emplace(key, std::move(order)).first->second.get(); // a build that lost the race is dropped
  };
  if (!known) {
    ScheduleShape many = shape;              // a short step must not hide the rounds of long ones
    many.micro_batches += 16 * shape.turn(); // whole rounds: no group is smaller than the stages
    std::optional<SteadyOrder> built = make_steady_order(schedule, many, blocking, remembers);
    const SteadyOrder* const steady =
        keep(steady_, by_rest, built ? std::make_unique<const SteadyOrder>(std::move(*built)) : nullptr);
    if (steady && steady->shape.micro_batches <= shape.micro_batches) return *steady;
  }
  return *keep(
      whole_, by_number,
      std::make_unique<const SteadyOrder>(without_rounds(make_slot_order(schedule, shape, blocking, remembers))));
}

} // namespace foretrain
