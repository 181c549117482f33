#include "planner/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "core/base/text.h"
#include "planner/filter/filter.h"
#include "planner/layouts.h"
#include "planner/refine.h"
#include "planner/rules/rule.h"

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Where a layout stands in the enumeration: ties are broken by it, so that results do not depend on threads.
struct Position {
  std::size_t group = 0;
  std::int64_t index = 0;
  auto operator<=>(const Position&) const = default;
};

struct Found {
  double value = 0; ///< of the objective, smaller is better
  std::int64_t bytes = 0;
  Position position;
  Candidate candidate;
  /// Better value first, then more memory headroom, then enumeration order.
  friend bool operator<(const Found& a, const Found& b) {
    if (a.value != b.value) return a.value < b.value;
    if (a.bytes != b.bytes) return a.bytes < b.bytes;
    return a.position < b.position;
  }
};

struct Missed {
  double excess = 0; ///< how far beyond the limit, relative
  Position position;
  NearMiss miss;
  friend bool operator<(const Missed& a, const Missed& b) {
    return a.excess != b.excess ? a.excess < b.excess : a.position < b.position;
  }
};

double value_of(Objective objective, const Evaluation& evaluation) {
  switch (objective) {
  case Objective::step_time:
  case Objective::throughput: // the tokens of a step are the study's
  case Objective::cost:       // and so are its devices and their price
    return evaluation.step_seconds;
  case Objective::memory_headroom: return static_cast<double>(evaluation.device_bytes);
  }
  return evaluation.step_seconds;
}

/// Keeps the smallest `limit` entries of what is added.
template <class T> class Best {
public:
  explicit Best(std::size_t limit) : limit_(limit) {}
  void add(T entry) {
    if (limit_ == 0) return;
    if (heap_.size() == limit_) {
      if (!(entry < heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.back() = std::move(entry);
    } else {
      heap_.push_back(std::move(entry));
    }
    std::push_heap(heap_.begin(), heap_.end());
  }
  /// Whether an entry as bad as this would be kept.
  [[nodiscard]] bool full() const { return heap_.size() == limit_; }
  [[nodiscard]] const T& worst() const { return heap_.front(); }
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
    if (at != list_.begin() && std::prev(at)->bytes <= found.bytes) return;
    auto end = at;
    while (end != list_.end() && end->bytes >= found.bytes) ++end;
    list_.insert(list_.erase(at, end), found);
  }
  [[nodiscard]] const std::vector<Found>& list() const { return list_; }

private:
  static bool before(const Found& a, const Found& b) {
    const double ta = a.candidate.slots.step_seconds;
    const double tb = b.candidate.slots.step_seconds;
    if (ta != tb) return ta < tb;
    if (a.bytes != b.bytes) return a.bytes < b.bytes;
    return a.position < b.position;
  }
  std::vector<Found> list_;
};

/// What one thread found.
struct Share {
  std::int64_t legal = 0, evaluated = 0, fits = 0;
  std::map<std::string, std::int64_t> pruned, rejected;
  Best<Found> kept;
  Front front;
  std::map<std::string, Best<Missed>> misses;
  explicit Share(const SearchOptions& options) : kept(static_cast<std::size_t>(std::max<std::int64_t>(options.keep, options.top))) {}
};

class Search {
public:
  Search(const Study& study, const Semantics& semantics, const Evaluator& evaluator, const Filter& filter, const SearchOptions& options)
      : filter_(filter), study_(study), semantics_(semantics), evaluator_(evaluator), options_(options), space_(study, semantics),
        devices_(device_count(study.cluster)), capacity_(evaluator.capacity()) {}

  SearchResult run() {
    const Clock::time_point start = Clock::now();
    const auto jobs = static_cast<std::size_t>(std::max(1, options_.jobs));
    std::vector<Share> shares(jobs, Share(options_));
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < jobs; ++i) threads.emplace_back([&, i] { work(shares[i]); });
    work(shares[0]);
    for (std::thread& thread : threads) thread.join();
    SearchResult result = merge(std::move(shares));
    result.enumerated = space_.size();
    result.complete = !stopped();
    result.jobs = static_cast<int>(jobs);
    result.search_s = seconds_since(start);
    return result;
  }

private:
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop->load(std::memory_order_relaxed); }

  void work(Share& share) {
    Evaluator::Worker worker = evaluator_.worker();
    for (std::size_t group = next_++; group < space_.groups() && !stopped(); group = next_++) {
      const Layout& degrees = space_.degrees(group);
      const RuleInput input{study_.model, study_.cluster, study_.job, semantics_, degrees, devices_};
      if (const auto rejection = first_rejection(input, RuleScope::degrees)) {
        share.rejected[rejection->rule] += space_.group_size(group);
        miss(share, *rejection, degrees, {}, {group, 0});
        report(share, space_.group_size(group), 0);
        continue;
      }
      FieldRow row{study_.job, study_.cluster, degrees};
      row.degrees_only = true;
      if (filter_.test(row) == Truth::no) {
        share.pruned["where"] += space_.group_size(group);
        report(share, space_.group_size(group), 0);
        continue;
      }
      std::int64_t index = 0;
      const auto visit = [&](const Layout& layout) {
        const std::int64_t fitting = share.fits;
        judge(share, worker, layout, {group, index++});
        report(share, 1, share.fits - fitting);
        return !stopped();
      };
      // Model state depends neither on the micro-batch nor on recomputation: one look spares all layouts that share it.
      const auto admit = [&](const Layout& layout) { return !capacity_ || !worker.state_exceeds(layout, *capacity_); };
      const std::int64_t skipped = space_.visit_group(group, visit, admit);
      if (skipped == 0) continue;
      share.pruned["model-state"] += skipped;
      report(share, skipped, 0);
    }
  }

  void judge(Share& share, Evaluator::Worker& worker, const Layout& layout, Position position) {
    if (filter_.test({study_.job, study_.cluster, layout}) == Truth::no) {
      ++share.pruned["where"];
      return;
    }
    const RuleInput input{study_.model, study_.cluster, study_.job, semantics_, layout, devices_};
    if (const auto rejection = first_rejection(input, RuleScope::layout)) {
      ++share.rejected[rejection->rule];
      miss(share, *rejection, layout, {}, position);
      return;
    }
    ++share.legal;
    Found found;
    found.candidate.layout = layout;
    found.candidate.slots = worker.evaluate(layout);
    ++share.evaluated;
    found.bytes = found.candidate.slots.device_bytes;
    if (capacity_ && found.bytes > capacity_->value) {
      ++share.rejected["out-of-memory"];
      Rejection rejection;
      rejection.rule = "out-of-memory";
      rejection.needed = static_cast<double>(found.bytes);
      rejection.available = static_cast<double>(capacity_->value);
      rejection.reason = "stage " + std::to_string(found.candidate.slots.worst_stage) + " needs " + pretty(Bytes(found.bytes)) + ", the device has " + pretty(*capacity_);
      miss(share, rejection, layout, found.candidate.slots, position);
      return;
    }
    // What only a full prediction knows is decided once the best have one.
    if (filter_.test({study_.job, study_.cluster, layout, &found.candidate.slots}) == Truth::no) {
      ++share.rejected["where"];
      return;
    }
    ++share.fits;
    found.value = value_of(study_.objective, found.candidate.slots);
    found.position = position;
    share.front.add(found);
    share.kept.add(std::move(found));
  }

  void miss(Share& share, const Rejection& rejection, const Layout& layout, const Evaluation& slots, Position position) const {
    if (options_.near_misses <= 0) return;
    auto& list = share.misses.try_emplace(rejection.rule, static_cast<std::size_t>(std::max(0, options_.near_misses))).first->second;
    Missed missed;
    missed.excess = rejection.available > 0 ? std::abs(rejection.needed / rejection.available - 1) : 1;
    missed.position = position;
    if (list.full() && !(missed < list.worst())) return;
    missed.miss = {layout, rejection, slots};
    list.add(std::move(missed));
  }

  /// Progress at most ten times a second, from one thread at a time.
  void report(const Share&, std::int64_t done, std::int64_t fitting) {
    done_ += done;
    fitting_ += fitting;
    if (!options_.progress || (done == 1 && done_ % 256 != 0)) return;
    const std::unique_lock lock(progress_mutex_, std::try_to_lock);
    if (!lock || seconds_since(reported_) < 0.1) return;
    reported_ = Clock::now();
    options_.progress({"search", done_, space_.size(), fitting_});
  }

  SearchResult merge(std::vector<Share> shares) const {
    SearchResult result;
    Share all(options_);
    for (Share& share : shares) {
      result.legal += share.legal;
      result.evaluated += share.evaluated;
      result.fits += share.fits;
      for (const auto& [name, count] : share.pruned) result.pruned[name] += count;
      for (const auto& [name, count] : share.rejected) result.rejected[name] += count;
      for (const Found& found : share.front.list()) all.front.add(found);
      all.kept.merge(std::move(share.kept));
      for (auto& [rule, list] : share.misses) {
        auto& into = all.misses.try_emplace(rule, static_cast<std::size_t>(std::max(0, options_.near_misses))).first->second;
        into.merge(std::move(list));
      }
    }
    std::vector<Found> kept = std::move(all.kept).sorted();
    for (const Found& found : all.front.list())
      if (!std::binary_search(kept.begin(), kept.end(), found)) kept.push_back(found);
    std::sort(kept.begin(), kept.end());
    result.kept.reserve(kept.size());
    for (Found& found : kept) result.kept.push_back(std::move(found.candidate));
    for (auto& [rule, list] : all.misses)
      for (Missed& missed : std::move(list).sorted()) result.near_misses.push_back(std::move(missed.miss));
    return result;
  }

  const Filter& filter_;
  const Study& study_;
  const Semantics& semantics_;
  const Evaluator& evaluator_;
  const SearchOptions& options_;
  LayoutSpace space_;
  int devices_;
  std::optional<Bytes> capacity_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::int64_t> done_{0};
  std::atomic<std::int64_t> fitting_{0};
  std::mutex progress_mutex_;
  Clock::time_point reported_{};
};

/// Indices of the ranked plans that no other ranked plan beats in both time and memory.
std::vector<int> pareto_of(const std::vector<Candidate>& ranked) {
  const auto device = [](const Candidate& c) {
    Bytes highest;
    for (const StageMemory& stage : c.prediction.memory) highest = std::max(highest, stage.device);
    return highest;
  };
  std::vector<int> front;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const bool beaten = std::any_of(ranked.begin(), ranked.end(), [&](const Candidate& other) {
      const bool better = other.prediction.step_time <= ranked[i].prediction.step_time && device(other) <= device(ranked[i]);
      return better && (other.prediction.step_time < ranked[i].prediction.step_time || device(other) < device(ranked[i]));
    });
    if (!beaten) front.push_back(static_cast<int>(i));
  }
  return front;
}

/// Plans whose own part of the interval overlaps the best one's: between plans of one study most of the error is shared,
/// so a difference is known to about a fifth of the absolute interval.
int tied_with_best(const std::vector<Candidate>& ranked) {
  constexpr double kOwnShare = 0.2;
  if (ranked.empty()) return 0;
  const Prediction& best = ranked.front().prediction;
  const double own = kOwnShare * (best.step_time_interval[1].value - best.step_time.value);
  return static_cast<int>(std::count_if(ranked.begin(), ranked.end(), [&](const Candidate& c) { return c.prediction.step_time.value <= best.step_time.value + own; }));
}

} // namespace

Result<SearchResult> search(const Study& study, const Semantics& semantics, const Calibration& calibration, const SearchOptions& options) {
  const Clock::time_point start = Clock::now();
  if (study.objective == Objective::cost && !study.cluster.cost_per_device_hour)
    return fail("--objective", "cost needs the cluster's cost_per_device_hour, which is not known", "add it to the cluster, or rank by step-time");
  FORETRAIN_TRY(const Filter filter, Filter::parse(study.where, "where"));
  FORETRAIN_TRY(const Evaluator evaluator, Evaluator::make(study.model, study.cluster, study.job, semantics, calibration));
  SearchResult result = Search(study, semantics, evaluator, filter, options).run();
  const Result<void> refined = refine(study, semantics, evaluator, options, result);
  if (!refined) return tl::unexpected<Error>(refined.error());
  std::erase_if(result.ranked, [&](const Candidate& candidate) {
    return !filter.admits({study.job, study.cluster, candidate.layout, &candidate.slots, &candidate.prediction});
  });
  result.pareto = pareto_of(result.ranked);
  result.tied_with_best = tied_with_best(result.ranked);
  result.elapsed_s = seconds_since(start);
  return result;
}

Result<Prediction> predict(const Plan& plan, const Semantics& semantics, const Calibration& calibration, Engine engine, const std::string& worker, const std::string& data) {
  FORETRAIN_TRY(const Evaluator evaluator, Evaluator::make(plan.model, plan.cluster, plan.job, semantics, calibration));
  const RuleInput input{plan.model, plan.cluster, plan.job, semantics, plan.layout, device_count(plan.cluster)};
  std::vector<Rejection> rejections = all_rejections(input);
  if (!rejections.empty()) {
    Prediction illegal;
    illegal.verdict = Verdict::illegal;
    illegal.engine = engine;
    illegal.rejections = std::move(rejections);
    return illegal;
  }
  return predict_with(evaluator, plan, semantics, engine, worker, data);
}

} // namespace foretrain
