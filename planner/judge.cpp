#include "planner/judge.h"

#include <algorithm>
#include <cmath>

#include "planner/remedies.h"
#include "planner/rules/rule.h"
#include "planner/twins.h"

namespace foretrain {

SearchContext::SearchContext(const Study& s, const Semantics& framework, const Evaluator& e, const Filter& f,
                             const SearchOptions& o)
    : study(s), semantics(framework), evaluator(e), filter(f), options(o), space(s, framework),
      devices(device_count(s.cluster)), capacity(e.capacity()),
      so_far(o.found ? static_cast<std::size_t>(std::max(0, o.found_limit)) : 0) {}

double SearchContext::value_of(double step_seconds, std::int64_t device_bytes) const {
  switch (study.objective) {
  case Objective::step_time:
  case Objective::throughput: // the tokens of a step are the study's
  case Objective::cost:       // and so are its devices and their price
    return step_seconds;
  case Objective::memory_headroom:
    return static_cast<double>(device_bytes);
  }
  return step_seconds;
}

void SearchContext::begin(std::string phase, std::int64_t total) {
  phase_ = std::move(phase);
  total_ = total;
  done_ = 0;
}

void SearchContext::report(std::int64_t done, std::int64_t fitting) {
  constexpr std::int64_t kStride = 256;
  const std::int64_t before = done_.fetch_add(done);
  fitting_ += fitting;
  if ((!options.progress && !options.found) || before / kStride == (before + done) / kStride) return;
  const std::unique_lock lock(progress_mutex_, std::try_to_lock);
  const auto now = std::chrono::steady_clock::now();
  if (!lock || now - reported_ < std::chrono::milliseconds(100)) return;
  reported_ = now;
  if (options.progress) options.progress({phase_, done_, total_, fitting_});
  SearchResult best;
  if (!options.found || !so_far.take(best)) return;
  best.enumerated = space.size();
  best.fits = fitting_;
  options.found(best);
}

Share::Share(const SearchOptions& options)
    : kept(std::max(static_cast<std::size_t>(std::max<std::int64_t>(0, options.keep)), most_refined(options))) {}

bool Judge::admits(Dimension settled, const Layout& layout, std::int64_t layouts, LayoutPosition position) {
  const SearchContext& c = context_;
  if (!c.filter.empty()) {
    FieldRow row{c.study.job, c.study.cluster, layout};
    row.settled = settled;
    if (c.filter.test(row) == Truth::no) {
      share_.pruned["where"] += layouts;
      return false;
    }
  }
  const RuleInput input{c.study.model, c.study.cluster, c.study.job, c.semantics, layout, c.devices};
  const auto rejection = first_rejection(input, settled);
  if (!rejection) {
    const auto& asked = c.study.space.schedules;
    const bool looks =
        settled == Dimension::micro_batch && c.filter.empty(); // a filter may have taken the other one away
    const auto weights = [&] { return worker_.slot_weights(layout); };
    if (!looks || !repeats_schedule(layout, c.study.job, asked.empty() ? c.semantics.schedules : asked, weights))
      return true;
    share_.pruned["same-schedule"] += layouts;
    return false;
  }
  share_.rejected[rejection->rule] += layouts;
  const double excess = rejection->available > 0 ? std::abs(rejection->needed / rejection->available - 1) : 1;
  miss(rejection->rule, excess, position, layout, {}, [&] { return *rejection; });
  return false;
}

/// Model state depends neither on the micro-batch nor on recomputation, what activations take at least not on the
/// latter: one look spares all layouts that share them.
bool Judge::can_fit(Dimension settled, const Layout& layout, std::int64_t layouts, LayoutPosition position) {
  const bool state = settled == Dimension::offload;
  if (!context_.capacity || (!state && settled != Dimension::dispatch)) return true;
  const auto least = state ? worker_.least_state(layout) : worker_.least_activations(layout);
  if (least.bytes <= *context_.capacity) return true;
  const std::string bound(state ? kModelState : kActivations);
  share_.pruned[bound] += layouts;
  no_room(bound, layout, position, {0, least.bytes.value, least.stage});
  return false;
}

/// A near miss of memory.
void Judge::no_room(const std::string& rule, const Layout& layout, LayoutPosition position, const Evaluation& slots) {
  const Bytes memory = *context_.capacity;
  const double excess = static_cast<double>(slots.device_bytes) / static_cast<double>(memory.value) - 1;
  miss(rule, excess, position, layout, slots, [&] { return memory_rejection(rule, slots, memory); });
}

/// Those that are legal.
void Judge::choose(const Layout& layout, std::span<const RecomputeChoice> choices, LayoutPosition first) {
  chosen_.clear();
  some_.clear();
  layout_ = layout;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    layout_.recompute = choices[i];
    const auto index = static_cast<std::int64_t>(i);
    if (!admits(Dimension::recompute, layout_, 1, {first.group, first.index + index})) continue;
    chosen_.push_back(index);
    some_.push_back(choices[i]);
  }
}

void Judge::evaluate_chosen(const Layout& layout, LayoutPosition first) {
  evaluations_.resize(some_.size());
  if (!some_.empty()) worker_.evaluate(layout, some_, evaluations_);
  layout_ = layout;
  for (std::size_t i = 0; i < some_.size(); ++i) {
    layout_.recompute = some_[i];
    rank(layout_, evaluations_[i], {first.group, first.index + chosen_[i]});
  }
  share_.legal += static_cast<std::int64_t>(some_.size());
  share_.evaluated += static_cast<std::int64_t>(some_.size());
}

void Judge::evaluate(const Layout& layout, std::span<const RecomputeChoice> choices, LayoutPosition first) {
  choose(layout, choices, first);
  evaluate_chosen(layout, first);
}

/// Leaves out what memory rules out, and what `chance` does not leave one.
void Judge::leave_out(const Layout& layout, LayoutPosition first, const std::function<bool(const Floor&)>& chance) {
  floors_.resize(some_.size());
  worker_.floors(layout, some_, floors_);
  layout_ = layout;
  std::size_t left = 0;
  for (std::size_t i = 0; i < floors_.size(); ++i) {
    const Floor& floor = floors_[i];
    if (context_.capacity && floor.device_bytes > context_.capacity->value) {
      const std::string bound(kActivations);
      ++share_.pruned[bound];
      layout_.recompute = some_[i];
      no_room(bound, layout_, {first.group, first.index + chosen_[i]}, {0, floor.device_bytes, floor.worst_stage});
    } else if (!chance(floor)) {
      ++share_.pruned["bound"];
    } else {
      chosen_[left] = chosen_[i];
      some_[left++] = some_[i];
    }
  }
  chosen_.resize(left);
  some_.resize(left);
}

void Judge::evaluate(const Layout& layout, std::span<const RecomputeChoice> choices, LayoutPosition first,
                     const std::function<bool(const Floor&)>& chance) {
  choose(layout, choices, first);
  leave_out(layout, first, chance);
  evaluate_chosen(layout, first);
}

void Judge::rank(const Layout& layout, const Evaluation& slots, LayoutPosition position) {
  const SearchContext& c = context_;
  if (c.capacity && slots.device_bytes > c.capacity->value) {
    const std::string rule(kOutOfMemory);
    ++share_.rejected[rule];
    no_room(rule, layout, position, slots);
    return;
  }
  // What only a full prediction knows is decided once the best have one.
  const Truth admitted = c.filter.empty() ? Truth::yes : c.filter.test({c.study.job, c.study.cluster, layout, &slots});
  if (admitted == Truth::no) {
    ++share_.rejected["where"];
    return;
  }
  ++share_.fits;
  const Found found{c.value_of(slots.step_seconds, slots.device_bytes), position, slots};
  share_.front.add(found);
  share_.kept.add(found);
  if (share_.tell) share_.tell(found, admitted == Truth::yes);
  context_.so_far.add(found, layout);
}

/// Keeps the nearest misses of each rule; `describe` is asked for those only.
template <class Describe>
void Judge::miss(const std::string& rule, double excess, LayoutPosition position, const Layout& layout,
                 const Evaluation& slots, Describe&& describe) {
  if (context_.options.near_misses <= 0) return;
  auto& list = share_.misses.try_emplace(rule, static_cast<std::size_t>(context_.options.near_misses)).first->second;
  Missed missed{excess, position, {}};
  if (!list.takes(missed)) return;
  missed.miss = {layout, describe(), slots};
  list.add(std::move(missed));
}

} // namespace foretrain
