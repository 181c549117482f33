#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "planner/best.h"
#include "planner/filter/filter.h"
#include "planner/layouts.h"
#include "planner/search.h"
#include "planner/so_far.h"

namespace foretrain {

/// What the threads of a search share.
struct SearchContext {
  SearchContext(const Study& study, const Semantics& semantics, const Evaluator& evaluator, const Filter& filter,
                const SearchOptions& options);

  [[nodiscard]] bool stopped() const { return options.stop && options.stop->load(std::memory_order_relaxed); }
  /// Of the objective, smaller is better.
  [[nodiscard]] double value_of(double step_seconds, std::int64_t device_bytes) const;
  /// Begins a phase of `total` layouts.
  void begin(std::string phase, std::int64_t total);
  /// Layouts that were judged. Reports progress at most ten times a second, from one thread at a time.
  void report(std::int64_t done, std::int64_t fitting);

  const Study& study;
  const Semantics& semantics;
  const Evaluator& evaluator;
  const Filter& filter;
  const SearchOptions& options;
  LayoutSpace space;
  int devices;
  std::optional<Bytes> capacity;
  SoFar so_far;

private:
  std::string phase_;
  std::int64_t total_ = 0;
  std::atomic<std::int64_t> done_{0};
  std::atomic<std::int64_t> fitting_{0};
  std::mutex progress_mutex_;
  std::chrono::steady_clock::time_point reported_{};
};

/// What one thread found.
struct Share {
  explicit Share(const SearchOptions& options);

  std::int64_t legal = 0, evaluated = 0, fits = 0;
  std::map<std::string, std::int64_t> pruned, rejected;
  Best<Found> kept;
  Front front;
  /// Called with what fits, and whether the filter admits it whatever a full prediction says.
  std::function<void(const Found&, bool sure)> tell;
  std::map<std::string, Best<Missed>> misses;
};

/// Judges layouts for one thread: what the filter and the rules admit, what can fit, what an evaluation says.
class Judge {
public:
  Judge(SearchContext& context, Share& share) : context_(context), share_(share), worker_(context.evaluator.worker()) {}

  /// Whether filter and rules let what is settled pass; if not, `layouts` are counted where they fail.
  bool admits(Dimension settled, const Layout& layout, std::int64_t layouts, LayoutPosition position);
  /// Whether what is settled leaves room in the device's memory; if not, `layouts` are counted.
  bool can_fit(Dimension settled, const Layout& layout, std::int64_t layouts, LayoutPosition position);
  /// Evaluates those of `choices` that are legal; `first` is the position of the first.
  void evaluate(const Layout& layout, std::span<const RecomputeChoice> choices, LayoutPosition first);
  /// The same of those whose floors memory and `chance` let pass.
  void evaluate(const Layout& layout, std::span<const RecomputeChoice> choices, LayoutPosition first,
                const std::function<bool(const Floor&)>& chance);

  [[nodiscard]] Evaluator::Worker& worker() { return worker_; }

private:
  void choose(const Layout& layout, std::span<const RecomputeChoice> choices, LayoutPosition first);
  void leave_out(const Layout& layout, LayoutPosition first, const std::function<bool(const Floor&)>& chance);
  void evaluate_chosen(const Layout& layout, LayoutPosition first);
  void rank(const Layout& layout, const Evaluation& slots, LayoutPosition position);
  void no_room(const std::string& rule, const Layout& layout, LayoutPosition position, const Evaluation& slots);
  template <class Describe>
  void miss(const std::string& rule, double excess, LayoutPosition position, const Layout& layout,
            const Evaluation& slots, Describe&& describe);

  SearchContext& context_;
  Share& share_;
  Evaluator::Worker worker_;
  // Scratch.
  Layout layout_;
  std::vector<std::int64_t> chosen_; ///< indices of choices
  std::vector<RecomputeChoice> some_;
  std::vector<Evaluation> evaluations_;
  std::vector<Floor> floors_;
};

} // namespace foretrain
