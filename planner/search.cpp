#include "planner/search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <numeric>
#include <optional>
#include <thread>

#include "core/spec/framework_kernels.h"
#include "core/spec/intervals.h"
#include "planner/best_first.h"
#include "planner/judge.h"
#include "planner/refine.h"
#include "planner/remedies.h"
#include "planner/rules/rule.h"
#include "planner/ties.h"

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Judges every layout of a group: whole branches where what is settled decides.
class Walk final : public LayoutSpace::Walk {
public:
  Walk(SearchContext& context, Share& share) : context_(context), share_(share), judge_(context, share) {}

  void judge(std::size_t group) {
    position_ = {group, 0};
    const std::int64_t layouts = context_.space.group_size(group);
    if (judge_.admits(Dimension::degrees, context_.space.degrees(group), layouts, position_))
      context_.space.walk_group(group, *this);
    else
      context_.report(layouts, 0);
  }

  bool enter(Dimension settled, const Layout& layout, std::int64_t layouts) override {
    if (context_.stopped()) return false;
    const bool goes_on =
        judge_.admits(settled, layout, layouts, position_) && judge_.can_fit(settled, layout, layouts, position_);
    if (!goes_on) {
      position_.index += layouts;
      context_.report(layouts, 0);
    }
    return goes_on;
  }

  bool visit(const Layout& layout, std::span<const RecomputeChoice> choices, std::int64_t first) override {
    const std::int64_t fitting = share_.fits;
    judge_.evaluate(layout, choices, {position_.group, first});
    position_.index = first + static_cast<std::int64_t>(choices.size());
    context_.report(static_cast<std::int64_t>(choices.size()), share_.fits - fitting);
    return !context_.stopped();
  }

private:
  SearchContext& context_;
  Share& share_;
  Judge judge_;
  LayoutPosition position_; ///< of what is being judged
};

class Search {
public:
  Search(const Study& study, const Semantics& semantics, const Evaluator& evaluator, const Filter& filter,
         const SearchOptions& options)
      : context_(study, semantics, evaluator, filter, options), units_(units_of(context_.space)) {}

  SearchResult run(bool exhaustive) {
    const Clock::time_point start = Clock::now();
    const auto jobs = static_cast<std::size_t>(std::max(1, context_.options.jobs));
    std::vector<Share> shares(jobs, Share(context_.options));
    if (exhaustive)
      look_at_all(shares);
    else
      search_best_first(context_, units_, shares);
    SearchResult result = merge(std::move(shares));
    mend(result);
    result.enumerated = context_.space.size();
    result.exhaustive = exhaustive;
    result.complete = !context_.stopped();
    result.jobs = static_cast<int>(jobs);
    result.search_s = seconds_since(start);
    return result;
  }

private:
  void look_at_all(std::vector<Share>& shares) {
    context_.begin("search", context_.space.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&](Share& share) {
      Walk walk(context_, share);
      for (std::size_t unit = next++; unit < units_.size() && !context_.stopped(); unit = next++)
        for (const std::size_t group : units_[unit])
          if (!context_.stopped()) walk.judge(group);
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < shares.size(); ++i) threads.emplace_back([&, i] { work(shares[i]); });
    work(shares[0]);
    for (std::thread& thread : threads) thread.join();
  }

  /// Groups of layouts with equal tp, cp, ep and etp are one piece of work: their layers are alike.
  static SearchUnits units_of(const LayoutSpace& space) {
    std::map<std::array<int, 4>, std::vector<std::size_t>> units;
    for (std::size_t group = 0; group < space.groups(); ++group) {
      const Layout& l = space.degrees(group);
      units[{l.tp, l.cp, l.ep, l.etp}].push_back(group);
    }
    SearchUnits list;
    for (auto& [degrees, groups] : units) list.push_back(std::move(groups));
    return list;
  }

  /// What would fit where memory is wanting.
  void mend(SearchResult& result) const {
    const SearchContext& c = context_;
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      Evaluator::Worker worker = c.evaluator.worker();
      for (std::size_t i = next++; i < result.near_misses.size() && !c.stopped(); i = next++)
        if (NearMiss& miss = result.near_misses[i]; is_memory(miss.rejection.rule))
          miss.rejection.nearest = remedies(
              c.evaluator, worker, {c.study.model, c.study.cluster, c.study.job, c.semantics, miss.layout, c.devices});
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < c.options.jobs; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
  }

  SearchResult merge(std::vector<Share> shares) const {
    SearchResult result;
    Share all(context_.options);
    for (Share& share : shares) {
      result.legal += share.legal;
      result.evaluated += share.evaluated;
      result.fits += share.fits;
      for (const auto& [name, count] : share.pruned) result.pruned[name] += count;
      for (const auto& [name, count] : share.rejected) result.rejected[name] += count;
      for (const Found& found : share.front.list()) all.front.add(found);
      all.kept.merge(std::move(share.kept));
      for (auto& [rule, list] : share.misses) {
        auto& into = all.misses.try_emplace(rule, static_cast<std::size_t>(std::max(0, context_.options.near_misses)))
                         .first->second;
        into.merge(std::move(list));
      }
    }
    std::vector<Found> kept = std::move(all.kept).sorted();
    const std::size_t best = kept.size();
    for (const Found& found : all.front.list())
      if (!std::binary_search(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(best), found))
        kept.push_back(found);
    std::sort(kept.begin(), kept.end());
    result.kept = candidates(kept);
    // What more memory would mend comes first: every rule lets it pass.
    std::vector<NearMiss> others;
    for (auto& [rule, list] : all.misses)
      for (Missed& missed : std::move(list).sorted())
        (is_memory(rule) ? result.near_misses : others).push_back(std::move(missed.miss));
    std::move(others.begin(), others.end(), std::back_inserter(result.near_misses));
    return result;
  }

  /// In the order of `kept`; layouts are made in that of the space, where neighbours share most of the work.
  [[nodiscard]] std::vector<Candidate> candidates(const std::vector<Found>& kept) const {
    std::vector<std::size_t> order(kept.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return kept[a].position < kept[b].position; });
    std::vector<LayoutPosition> positions;
    for (const std::size_t i : order) positions.push_back(kept[i].position);
    std::vector<Layout> layouts = context_.space.at(positions);
    std::vector<Candidate> list(kept.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      list[order[i]].layout = std::move(layouts[i]);
      list[order[i]].slots = kept[order[i]].slots;
    }
    return list;
  }

  SearchContext context_;
  SearchUnits units_;
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
      const bool better =
          other.prediction.step_time <= ranked[i].prediction.step_time && device(other) <= device(ranked[i]);
      return better &&
             (other.prediction.step_time < ranked[i].prediction.step_time || device(other) < device(ranked[i]));
    });
    if (!beaten) front.push_back(static_cast<int>(i));
  }
  return front;
}

} // namespace

std::string_view id_of(Extent value) {
  switch (value) {
  case Extent::automatic:
    return "automatic";
  case Extent::exhaustive:
    return "exhaustive";
  case Extent::best:
    return "best-first";
  }
  return {};
}

Result<Extent> extent_from(std::string_view id, std::string_view where) {
  for (const Extent value : {Extent::automatic, Extent::exhaustive, Extent::best})
    if (id == id_of(value)) return value;
  return fail(std::string(where), "'" + std::string(id) + "' is no way to search",
              "automatic, exhaustive or best-first");
}

Result<SpaceSize> space_size(const Study& study, const Semantics& semantics) {
  FORETRAIN_TRY(const Filter filter, Filter::parse(study.where, "where"));
  const LayoutSpace space(study, semantics);
  SpaceSize size{space.size(), 0};
  for (std::size_t group = 0; group < space.groups(); ++group) {
    const Layout& degrees = space.degrees(group);
    FieldRow row{study.job, study.cluster, degrees};
    row.settled = Dimension::degrees;
    const RuleInput input{study.model, study.cluster, study.job, semantics, degrees, device_count(study.cluster)};
    if (filter.test(row) != Truth::no && !first_rejection(input, Dimension::degrees))
      size.left += space.group_size(group);
  }
  return size;
}

Result<SearchResult> search(const Study& study, const Semantics& framework, const Calibration& calibrated,
                            const SearchOptions& options) {
  const Clock::time_point start = Clock::now();
  if (study.objective == Objective::cost && !study.cluster.cost_per_device_hour)
    return fail("--objective", "cost needs the cluster's cost_per_device_hour, which is not known",
                "add it to the cluster, or rank by step-time");
  FORETRAIN_TRY(const Filter filter, Filter::parse(study.where, "where"));
  FORETRAIN_TRY(const OnDevice own, adapted(framework, calibrated, study.cluster, options.data));
  const Semantics& semantics = own.semantics;
  const Calibration& calibration = own.calibration;
  std::optional<Intervals> intervals;
  if (!options.data.empty()) {
    FORETRAIN_TRY(intervals, read_intervals(options.data));
  }
  FORETRAIN_TRY(const Evaluator evaluator,
                Evaluator::make(study.model, study.cluster, study.job, semantics, calibration));
  bool exhaustive = options.extent == Extent::exhaustive;
  if (options.extent == Extent::automatic) {
    FORETRAIN_TRY(const SpaceSize size, space_size(study, semantics));
    exhaustive = size.left <= kEveryLayout;
  }
  SearchResult result = Search(study, semantics, evaluator, filter, options).run(exhaustive);
  if (options.found && result.complete) {
    result.complete = false; // the best are still to be replayed
    options.found(result);
    result.complete = true;
  }
  const Result<void> refined = refine(study, semantics, filter, evaluator, options, result);
  if (!refined) return tl::unexpected<Error>(refined.error());
  if (options.stop && options.stop->load(std::memory_order_relaxed))
    result.complete = false; // while the best were refined
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
