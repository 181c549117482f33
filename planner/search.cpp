#include "planner/search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "core/base/text.h"
#include "core/spec/framework_kernels.h"
#include "core/spec/intervals.h"
#include "planner/best.h"
#include "planner/filter/filter.h"
#include "planner/layouts.h"
#include "planner/refine.h"
#include "planner/remedies.h"
#include "planner/rules/rule.h"
#include "planner/so_far.h"
#include "planner/ties.h"
#include "planner/twins.h"

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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
        devices_(device_count(study.cluster)), capacity_(evaluator.capacity()), units_(units_of(space_)),
        so_far_(options.found ? static_cast<std::size_t>(std::max(0, options.found_limit)) : 0) {}

  SearchResult run() {
    const Clock::time_point start = Clock::now();
    const auto jobs = static_cast<std::size_t>(std::max(1, options_.jobs));
    std::vector<Share> shares(jobs, Share(options_));
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < jobs; ++i) threads.emplace_back([&, i] { work(shares[i]); });
    work(shares[0]);
    for (std::thread& thread : threads) thread.join();
    SearchResult result = merge(std::move(shares));
    mend(result);
    result.enumerated = space_.size();
    result.complete = !stopped();
    result.jobs = static_cast<int>(jobs);
    result.search_s = seconds_since(start);
    return result;
  }

private:
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop->load(std::memory_order_relaxed); }

  void work(Share& share) {
    Judge judge(*this, share);
    for (std::size_t unit = next_++; unit < units_.size() && !stopped(); unit = next_++)
      for (const std::size_t group : units_[unit])
        if (!stopped()) judge.judge(group);
  }

  /// Groups of layouts with equal tp, cp, ep and etp are one piece of work: their layers are alike.
  static std::vector<std::vector<std::size_t>> units_of(const LayoutSpace& space) {
    std::map<std::array<int, 4>, std::vector<std::size_t>> units;
    for (std::size_t group = 0; group < space.groups(); ++group) {
      const Layout& l = space.degrees(group);
      units[{l.tp, l.cp, l.ep, l.etp}].push_back(group);
    }
    std::vector<std::vector<std::size_t>> list;
    for (auto& [degrees, groups] : units) list.push_back(std::move(groups));
    return list;
  }

  /// Judges the layouts of one group after the other: whole branches where what is settled decides.
  class Judge final : public LayoutSpace::Walk {
  public:
    Judge(Search& search, Share& share) : search_(search), share_(share), worker_(search.evaluator_.worker()) {}

    void judge(std::size_t group) {
      group_ = group;
      index_ = 0;
      const std::int64_t layouts = search_.space_.group_size(group);
      if (admits(Dimension::degrees, search_.space_.degrees(group), layouts)) search_.space_.walk_group(group, *this);
      else search_.report(layouts, 0);
    }

    bool enter(Dimension settled, const Layout& layout, std::int64_t layouts) override {
      if (search_.stopped()) return false;
      const bool goes_on = admits(settled, layout, layouts) && can_fit(settled, layout, layouts);
      if (!goes_on) {
        index_ += layouts;
        search_.report(layouts, 0);
      }
      return goes_on;
    }

    bool visit(const Layout& layout, std::span<const RecomputeChoice> choices, std::int64_t first) override {
      const std::int64_t fitting = share_.fits;
      legal_.clear();
      layout_ = layout;
      for (std::size_t i = 0; i < choices.size(); ++i) {
        index_ = first + static_cast<std::int64_t>(i);
        layout_.recompute = choices[i];
        if (admits(Dimension::recompute, layout_, 1)) legal_.push_back(i);
      }
      index_ = first + static_cast<std::int64_t>(choices.size());
      std::span<const RecomputeChoice> wanted = choices;
      if (legal_.size() < choices.size()) {
        some_.clear();
        for (const std::size_t i : legal_) some_.push_back(choices[i]);
        wanted = some_;
      }
      evaluations_.resize(wanted.size());
      if (!wanted.empty()) worker_.evaluate(layout, wanted, evaluations_);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        layout_.recompute = wanted[i];
        rank(layout_, evaluations_[i], {group_, first + static_cast<std::int64_t>(legal_[i])});
      }
      share_.legal += static_cast<std::int64_t>(wanted.size());
      share_.evaluated += static_cast<std::int64_t>(wanted.size());
      search_.report(static_cast<std::int64_t>(choices.size()), share_.fits - fitting);
      return !search_.stopped();
    }

  private:
    /// Whether filter and rules let what is settled pass; if not, `layouts` are counted where they fail.
    bool admits(Dimension settled, const Layout& layout, std::int64_t layouts) {
      const Search& s = search_;
      if (!s.filter_.empty()) {
        FieldRow row{s.study_.job, s.study_.cluster, layout};
        row.settled = settled;
        if (s.filter_.test(row) == Truth::no) {
          share_.pruned["where"] += layouts;
          return false;
        }
      }
      const RuleInput input{s.study_.model, s.study_.cluster, s.study_.job, s.semantics_, layout, s.devices_};
      const auto rejection = first_rejection(input, settled);
      if (!rejection) {
        const auto& asked = s.study_.space.schedules;
        const bool looks = settled == Dimension::micro_batch && s.filter_.empty(); // a filter may have taken the other one away
        if (!looks || !repeats_schedule(layout, s.study_.job, asked.empty() ? s.semantics_.schedules : asked)) return true;
        share_.pruned["same-schedule"] += layouts;
        return false;
      }
      share_.rejected[rejection->rule] += layouts;
      const double excess = rejection->available > 0 ? std::abs(rejection->needed / rejection->available - 1) : 1;
      miss(rejection->rule, excess, {group_, index_}, layout, {}, [&] { return *rejection; });
      return false;
    }

    /// Model state depends neither on the micro-batch nor on recomputation, what activations take at least not on the
    /// latter: one look spares all layouts that share them.
    bool can_fit(Dimension settled, const Layout& layout, std::int64_t layouts) {
      const bool state = settled == Dimension::offload;
      if (!search_.capacity_ || (!state && settled != Dimension::dispatch)) return true;
      const auto least = state ? worker_.least_state(layout) : worker_.least_activations(layout);
      if (least.bytes <= *search_.capacity_) return true;
      const std::string bound(state ? kModelState : kActivations);
      share_.pruned[bound] += layouts;
      no_room(bound, layout, {group_, index_}, {0, least.bytes.value, least.stage});
      return false;
    }

    /// A near miss of memory.
    void no_room(const std::string& rule, const Layout& layout, LayoutPosition position, const Evaluation& slots) {
      const Bytes capacity = *search_.capacity_;
      const double excess = static_cast<double>(slots.device_bytes) / static_cast<double>(capacity.value) - 1;
      miss(rule, excess, position, layout, slots, [&] { return memory_rejection(rule, slots, capacity); });
    }

    void rank(const Layout& layout, const Evaluation& slots, LayoutPosition position) {
      const Search& s = search_;
      if (s.capacity_ && slots.device_bytes > s.capacity_->value) {
        const std::string rule(kOutOfMemory);
        ++share_.rejected[rule];
        no_room(rule, layout, position, slots);
        return;
      }
      // What only a full prediction knows is decided once the best have one.
      if (!s.filter_.empty() && s.filter_.test({s.study_.job, s.study_.cluster, layout, &slots}) == Truth::no) {
        ++share_.rejected["where"];
        return;
      }
      ++share_.fits;
      const Found found{value_of(s.study_.objective, slots), position, slots};
      share_.front.add(found);
      share_.kept.add(found);
      search_.so_far_.add(found, layout);
    }

    /// Keeps the nearest misses of each rule; `describe` is asked for those only.
    template <class Describe>
    void miss(const std::string& rule, double excess, LayoutPosition position, const Layout& layout, const Evaluation& slots, Describe&& describe) {
      if (search_.options_.near_misses <= 0) return;
      auto& list = share_.misses.try_emplace(rule, static_cast<std::size_t>(search_.options_.near_misses)).first->second;
      Missed missed{excess, position, {}};
      if (!list.takes(missed)) return;
      missed.miss = {layout, describe(), slots};
      list.add(std::move(missed));
    }

    Search& search_;
    Share& share_;
    Evaluator::Worker worker_;
    std::size_t group_ = 0;
    std::int64_t index_ = 0; ///< within the group, of what is being judged
    // Scratch.
    Layout layout_;
    std::vector<std::size_t> legal_; ///< indices of choices
    std::vector<RecomputeChoice> some_;
    std::vector<Evaluation> evaluations_;
  };

  /// Progress at most ten times a second, from one thread at a time.
  void report(std::int64_t done, std::int64_t fitting) {
    constexpr std::int64_t kStride = 256;
    const std::int64_t before = done_.fetch_add(done);
    fitting_ += fitting;
    if ((!options_.progress && !options_.found) || before / kStride == (before + done) / kStride) return;
    const std::unique_lock lock(progress_mutex_, std::try_to_lock);
    if (!lock || seconds_since(reported_) < 0.1) return;
    reported_ = Clock::now();
    if (options_.progress) options_.progress({"search", done_, space_.size(), fitting_});
    SearchResult best;
    if (!options_.found || !so_far_.take(best)) return;
    best.enumerated = space_.size();
    best.fits = fitting_;
    options_.found(best);
  }

  /// What would fit, for the nearest of each way to miss for want of memory.
  void mend(SearchResult& result) const {
    constexpr int kMended = 4;
    std::map<std::string, int> mended;
    for (NearMiss& miss : result.near_misses) {
      if (!is_memory(miss.rejection.rule) || ++mended[miss.rejection.rule] > kMended || stopped()) continue;
      miss.rejection.nearest = remedies(evaluator_, {study_.model, study_.cluster, study_.job, semantics_, miss.layout, devices_});
    }
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
    const std::size_t best = kept.size();
    for (const Found& found : all.front.list())
      if (!std::binary_search(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(best), found)) kept.push_back(found);
    std::sort(kept.begin(), kept.end());
    result.kept = candidates(kept);
    // What more memory would mend comes first: every rule lets it pass.
    std::vector<NearMiss> others;
    for (auto& [rule, list] : all.misses)
      for (Missed& missed : std::move(list).sorted()) (is_memory(rule) ? result.near_misses : others).push_back(std::move(missed.miss));
    std::move(others.begin(), others.end(), std::back_inserter(result.near_misses));
    return result;
  }

  /// In the order of `kept`; layouts are made in that of the space, where neighbours share most of the work.
  [[nodiscard]] std::vector<Candidate> candidates(const std::vector<Found>& kept) const {
    std::vector<std::size_t> order(kept.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return kept[a].position < kept[b].position; });
    std::vector<LayoutPosition> positions;
    for (const std::size_t i : order) positions.push_back(kept[i].position);
    std::vector<Layout> layouts = space_.at(positions);
    std::vector<Candidate> list(kept.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      list[order[i]].layout = std::move(layouts[i]);
      list[order[i]].slots = kept[order[i]].slots;
    }
    return list;
  }

  const Filter& filter_;
  const Study& study_;
  const Semantics& semantics_;
  const Evaluator& evaluator_;
  const SearchOptions& options_;
  LayoutSpace space_;
  int devices_;
  std::optional<Bytes> capacity_;
  std::vector<std::vector<std::size_t>> units_;
  std::atomic<std::size_t> next_{0}; ///< unit
  std::atomic<std::int64_t> done_{0};
  std::atomic<std::int64_t> fitting_{0};
  std::mutex progress_mutex_;
  Clock::time_point reported_{};
  SoFar so_far_;
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

} // namespace

Result<SpaceSize> space_size(const Study& study, const Semantics& semantics) {
  FORETRAIN_TRY(const Filter filter, Filter::parse(study.where, "where"));
  const LayoutSpace space(study, semantics);
  SpaceSize size{space.size(), 0};
  for (std::size_t group = 0; group < space.groups(); ++group) {
    const Layout& degrees = space.degrees(group);
    FieldRow row{study.job, study.cluster, degrees};
    row.settled = Dimension::degrees;
    const RuleInput input{study.model, study.cluster, study.job, semantics, degrees, device_count(study.cluster)};
    if (filter.test(row) != Truth::no && !first_rejection(input, Dimension::degrees)) size.left += space.group_size(group);
  }
  return size;
}

Result<SearchResult> search(const Study& study, const Semantics& framework, const Calibration& calibrated, const SearchOptions& options) {
  const Clock::time_point start = Clock::now();
  if (study.objective == Objective::cost && !study.cluster.cost_per_device_hour)
    return fail("--objective", "cost needs the cluster's cost_per_device_hour, which is not known", "add it to the cluster, or rank by step-time");
  FORETRAIN_TRY(const Filter filter, Filter::parse(study.where, "where"));
  FORETRAIN_TRY(const OnDevice own, adapted(framework, calibrated, study.cluster, options.data));
  const Semantics& semantics = own.semantics;
  const Calibration& calibration = own.calibration;
  std::optional<Intervals> intervals;
  if (!options.data.empty()) {
    FORETRAIN_TRY(intervals, read_intervals(options.data));
  }
  FORETRAIN_TRY(const Evaluator evaluator, Evaluator::make(study.model, study.cluster, study.job, semantics, calibration));
  SearchResult result = Search(study, semantics, evaluator, filter, options).run();
  if (options.found && result.complete) {
    result.complete = false; // the best are still to be replayed
    options.found(result);
    result.complete = true;
  }
  const Result<void> refined = refine(study, semantics, filter, evaluator, options, result);
  if (!refined) return tl::unexpected<Error>(refined.error());
  if (options.stop && options.stop->load(std::memory_order_relaxed)) result.complete = false; // while the best were refined
  std::erase_if(result.ranked, [&](const Candidate& candidate) {
    return !filter.admits({study.job, study.cluster, candidate.layout, &candidate.slots, &candidate.prediction});
  });
  if (intervals)
    for (Candidate& candidate : result.ranked) set_intervals(candidate.prediction, *intervals);
  result.pareto = pareto_of(result.ranked);
  result.tied_with_best = tied_with_best(result.ranked, intervals);
  result.preferred = preferred_of(result.ranked, intervals, evaluator.capacity());
  result.elapsed_s = seconds_since(start);
  return result;
}

} // namespace foretrain
