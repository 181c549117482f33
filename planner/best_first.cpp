#include "planner/best_first.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace foretrain {
namespace {

/// Layouts that differ in recomputation alone.
struct Leaf {
  double value = 0; ///< floor of the objective
  Floor floor;
  LayoutPosition first;
  friend bool operator<(const Leaf& a, const Leaf& b) {
    return a.value != b.value ? a.value < b.value : a.first < b.first;
  }
};

/// What was found, as far as it decides what else can be asked for.
class Chances {
public:
  explicit Chances(const SearchContext& context)
      : context_(&context), kept_(static_cast<std::size_t>(std::max<std::int64_t>(0, context.options.keep))),
        sure_(exact_best(context.options)) {}

  /// `sure`: the filter admits it whatever a full prediction says.
  void add(const Found& found, bool sure) {
    kept_.add(found);
    if (sure) sure_.add(found);
    front_.add(found);
  }
  void merge(const Chances& other) {
    kept_.merge(Best<Found>(other.kept_));
    sure_.merge(Best<Found>(other.sure_));
    for (const Found& found : other.front_.list()) front_.add(found);
  }
  /// What was found so far may be found again.
  void begin_again() {
    worst_ = worst();
    kept_ = Best<Found>(static_cast<std::size_t>(std::max<std::int64_t>(0, context_->options.keep)));
    sure_ = Best<Found>(exact_best(context_->options));
  }
  /// Whether a layout that takes at least this much can be asked for.
  [[nodiscard]] bool leave(const Floor& floor) const {
    return context_->value_of(floor.step_seconds, floor.device_bytes) <= worst() ||
           (context_->options.front && !front_.beats(floor));
  }

private:
  /// Value of the last that is asked for.
  [[nodiscard]] double worst() const {
    double value = worst_;
    for (const Best<Found>* best : {&kept_, &sure_})
      if (best->full() && !best->empty()) value = std::min(value, best->last().value);
    return value;
  }

  const SearchContext* context_;
  Best<Found> kept_;
  Best<Found> sure_;
  Front front_;
  double worst_ = std::numeric_limits<double>::infinity(); ///< of what may be found again
};

class BestFirst {
public:
  BestFirst(SearchContext& context, const SearchUnits& units, std::vector<Share>& shares)
      : context_(context), units_(units), shares_(shares), chances_(context), leaves_(shares.size()),
        news_(shares.size()) {}

  void run() {
    context_.begin("floors", context_.space.size());
    std::vector<Share> samples(shares_.size(), Share(context_.options));
    std::vector<Chances> sampled(shares_.size(), chances_);
    in_threads([&](std::size_t thread) { Survey(*this, thread, samples[thread], sampled[thread]).run(); });
    if (context_.stopped()) { // what was sampled stands
      shares_.insert(shares_.end(), samples.begin(), samples.end());
      return;
    }
    for (const Chances& own : sampled) chances_.merge(own);
    chances_.begin_again(); // samples are looked at again where they have a chance
    std::vector<Leaf> leaves;
    for (std::vector<Leaf>& own : leaves_) {
      leaves.insert(leaves.end(), own.begin(), own.end());
      own = {};
    }
    std::sort(leaves.begin(), leaves.end());
    evaluate(leaves);
  }

private:
  static constexpr std::size_t kRound = 256; ///< leaves whose evaluation learns nothing from each other

  template <class Work> void in_threads(const Work& work) {
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < shares_.size(); ++i) threads.emplace_back([&work, i] { work(i); });
    work(0);
    for (std::thread& thread : threads) thread.join();
  }

  /// Gives every leaf that can fit its floor, and evaluates the first of each group under the two simplest choices, so
  /// that there is something to compare with.
  class Survey final : public LayoutSpace::Walk {
  public:
    Survey(BestFirst& search, std::size_t thread, Share& sample, Chances& chances)
        : search_(search), context_(search.context_), share_(search.shares_[thread]), leaves_(search.leaves_[thread]),
          judge_(context_, share_), sampler_(context_, sample), chances_(chances) {
      sample.tell = [this](const Found& found, bool sure) { chances_.add(found, sure); };
    }

    void run() {
      for (std::size_t unit = search_.next_++; unit < search_.units_.size(); unit = search_.next_++)
        for (const std::size_t group : search_.units_[unit]) {
          if (context_.stopped()) return;
          survey(group);
        }
    }

    bool enter(Dimension settled, const Layout& layout, std::int64_t layouts) override {
      if (context_.stopped()) return false;
      const bool goes_on = judge_.admits(settled, layout, layouts, {group_, index_}) &&
                           judge_.can_fit(settled, layout, layouts, {group_, index_});
      if (!goes_on) skip(layouts);
      return goes_on;
    }

    bool visit(const Layout& layout, std::span<const RecomputeChoice> choices, std::int64_t first) override {
      Leaf leaf;
      leaf.floor = judge_.worker().floor(layout);
      leaf.value = context_.value_of(leaf.floor.step_seconds, leaf.floor.device_bytes);
      leaf.first = {group_, first};
      const auto layouts = static_cast<std::int64_t>(choices.size());
      // Chances only shrink: what has none by now has none later.
      if (chances_.leave(leaf.floor))
        leaves_.push_back(leaf);
      else
        share_.pruned["bound"] += layouts;
      if (!best_ || leaf < *best_) best_ = leaf;
      skip(layouts);
      return !context_.stopped();
    }

  private:
    void survey(std::size_t group) {
      group_ = group;
      index_ = 0;
      best_.reset();
      const std::int64_t layouts = context_.space.group_size(group);
      const Layout& degrees = context_.space.degrees(group);
      if (!judge_.admits(Dimension::degrees, degrees, layouts, {group_, index_})) {
        skip(layouts);
        return;
      }
      context_.space.walk_group(group, *this);
      if (!best_ || context_.stopped()) return;
      const auto [layout, choices] = context_.space.leaf(best_->first);
      for (std::size_t i = 0; i < choices.size(); ++i) {
        const RecomputeChoice& choice = choices[i];
        const bool whole = choice.kind == RecomputeKind::full && choice.method == RecomputeMethod::uniform;
        if (choice.kind != RecomputeKind::none && !whole) continue;
        sampler_.evaluate(layout, choices.subspan(i, 1), {group_, best_->first.index + static_cast<std::int64_t>(i)});
      }
    }
    void skip(std::int64_t layouts) {
      index_ += layouts;
      context_.report(layouts, 0);
    }

    BestFirst& search_;
    SearchContext& context_;
    Share& share_;
    std::vector<Leaf>& leaves_;
    Judge judge_;
    Judge sampler_;
    Chances& chances_; ///< by what this thread sampled
    std::size_t group_ = 0;
    std::int64_t index_ = 0;   ///< within the group, of what is being judged
    std::optional<Leaf> best_; ///< of the group
  };

  void evaluate(const std::vector<Leaf>& leaves) {
    std::vector<Judge> judges;
    for (std::size_t thread = 0; thread < shares_.size(); ++thread) {
      judges.emplace_back(context_, shares_[thread]);
      shares_[thread].tell = [&news = news_[thread]](const Found& found, bool sure) { news.emplace_back(found, sure); };
    }
    std::vector<std::int64_t> layouts(leaves.size());
    std::int64_t total = 0;
    for (std::size_t i = 0; i < leaves.size(); ++i)
      total += layouts[i] = static_cast<std::int64_t>(context_.space.leaf(leaves[i].first).second.size());
    context_.begin("search", total);
    std::vector<std::size_t> round;
    for (std::size_t next = 0; next < leaves.size() && !context_.stopped();) {
      round.clear();
      for (; next < leaves.size() && round.size() < kRound; ++next) {
        if (chances_.leave(leaves[next].floor)) {
          round.push_back(next);
          continue;
        }
        shares_.front().pruned["bound"] += layouts[next];
        context_.report(layouts[next], 0);
      }
      // Neighbours in the space share blocks.
      std::sort(round.begin(), round.end(),
                [&](std::size_t a, std::size_t b) { return leaves[a].first < leaves[b].first; });
      evaluate_round(leaves, round, judges);
      for (auto& news : news_) {
        for (const auto& [found, sure] : news) chances_.add(found, sure);
        news.clear();
      }
    }
  }

  void evaluate_round(const std::vector<Leaf>& leaves, const std::vector<std::size_t>& round,
                      std::vector<Judge>& judges) {
    constexpr std::size_t kPiece = 8;
    std::atomic<std::size_t> next{0};
    in_threads([&](std::size_t thread) {
      Share& share = shares_[thread];
      for (std::size_t first = next.fetch_add(kPiece); first < round.size(); first = next.fetch_add(kPiece))
        for (std::size_t i = first; i < std::min(round.size(), first + kPiece) && !context_.stopped(); ++i) {
          const auto [layout, choices] = context_.space.leaf(leaves[round[i]].first);
          const std::int64_t fitting = share.fits;
          judges[thread].evaluate(layout, choices, leaves[round[i]].first,
                                  [this](const Floor& floor) { return chances_.leave(floor); });
          context_.report(static_cast<std::int64_t>(choices.size()), share.fits - fitting);
        }
    });
  }

  SearchContext& context_;
  const SearchUnits& units_;
  std::vector<Share>& shares_;
  Chances chances_;
  std::vector<std::vector<Leaf>> leaves_;                 ///< by thread
  std::vector<std::vector<std::pair<Found, bool>>> news_; ///< by thread: what the round under way found
  std::atomic<std::size_t> next_{0};                      ///< unit
};

} // namespace

void search_best_first(SearchContext& context, const SearchUnits& units, std::vector<Share>& shares) {
  BestFirst(context, units, shares).run();
}

} // namespace foretrain
