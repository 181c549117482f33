#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/spec/plan.h"
#include "core/spec/semantics.h"
#include "planner/dimension.h"

namespace foretrain {

/// Where a layout stands in a space.
struct LayoutPosition {
  std::size_t group = 0;
  std::int64_t index = 0; ///< within the group
  auto operator<=>(const LayoutPosition&) const = default;
};

/// The layouts of a study: every combination of the values of each dimension whose degrees multiply to the number of
/// devices. A dimension without values in the study takes every one that the semantics name; recomputation of whole
/// layers comes in quarters of a chunk, replicas of shards for frameworks of the fsdp family only (others when asked).
/// Counted exactly before anything is evaluated, so that progress is a fraction.
class LayoutSpace {
public:
  LayoutSpace(const Study& study, const Semantics& semantics);
  LayoutSpace(const LayoutSpace&) = delete;
  LayoutSpace& operator=(const LayoutSpace&) = delete;
  LayoutSpace(LayoutSpace&&) = default;
  LayoutSpace& operator=(LayoutSpace&&) = default;
  ~LayoutSpace() = default;

  /// Layouts that will be visited.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Groups of layouts with the same degrees (tp, pp, cp, ep, etp, dp): the unit of parallel work.
  [[nodiscard]] std::size_t groups() const { return groups_.size(); }
  [[nodiscard]] std::int64_t group_size(std::size_t group) const;
  /// The degrees that the layouts of a group share; its other members are defaults.
  [[nodiscard]] const Layout& degrees(std::size_t group) const;

  /// Walks the layouts of a group as a tree: a branch for each value of each dimension, in the order of `Dimension`.
  class Walk {
  public:
    virtual ~Walk() = default;
    /// A dimension before `recompute` has got a value; those after it stand at their first. `layouts` lie below. False:
    /// they are left out.
    virtual bool enter(Dimension settled, const Layout& layout, std::int64_t layouts) = 0;
    /// All layouts that differ in recomputation alone; `first` is the index within the group of the first. False ends
    /// the walk.
    virtual bool visit(const Layout& layout, std::span<const RecomputeChoice> choices, std::int64_t first) = 0;
  };
  void walk_group(std::size_t group, Walk& walk) const;
  /// Every layout of a group in the same order; stops when `visit` returns false.
  void visit_group(std::size_t group, const std::function<bool(const Layout&)>& visit) const;
  /// The layouts that differ from that at this position in recomputation alone: the first, and the choices of all.
  [[nodiscard]] std::pair<Layout, std::span<const RecomputeChoice>> leaf(LayoutPosition position) const;
  /// The layouts at these (group, index within it), in ascending order.
  [[nodiscard]] std::vector<Layout> at(std::span<const LayoutPosition> positions) const;

private:
  struct Group {
    Layout degrees;
    std::int64_t size = 0;
  };
  /// What tensor parallelism does beside its degree.
  struct TensorChoice {
    bool sequence_parallel = false;
    bool overlap = false;
    void apply_to(Layout& layout) const {
      layout.sequence_parallel = sequence_parallel;
      layout.overlap.tp = overlap;
    }
  };
  /// The values of each dimension of a group.
  struct Dimensions {
    std::vector<ContextChoice> context;
    const std::vector<ScheduleChoice>* schedules = nullptr;
    const std::vector<const std::vector<RecomputeChoice>*>* recompute = nullptr; ///< by schedule
    std::vector<ShardingChoice> sharding;
    std::vector<bool> offload;
    const std::vector<int>* micro_batch = nullptr;
    std::vector<TensorChoice> tensor; ///< of `Dimension::sequence_parallel`
    std::vector<DispatchChoice> dispatch;
    /// Layouts that share the dimensions up to this one; from `schedule` on, with the schedule of this index.
    [[nodiscard]] std::int64_t below(Dimension settled, std::size_t schedule) const;
  };
  class Tree;
  /// The layout at an index of a group, and the index of its schedule.
  static std::pair<Layout, std::size_t> pick(const Layout& degrees, const Dimensions& dimensions, std::int64_t index);
  /// What groups with as many stages share.
  struct Stages {
    std::vector<ScheduleChoice> schedules;
    std::vector<const std::vector<RecomputeChoice>*> recompute; ///< by schedule
  };
  void add_group(const Layout& degrees);
  [[nodiscard]] std::vector<TensorChoice> tensor_choices(const Layout& degrees) const;
  [[nodiscard]] Dimensions dimensions_of(const Layout& degrees) const;

  Study study_;
  Semantics semantics_;
  std::vector<Group> groups_;
  // Lists that many groups share; they stay where they are.
  std::map<int, std::vector<RecomputeChoice>> recompute_; ///< by layers of a chunk
  std::map<int, Stages> stages_;                          ///< by pipeline stages
  std::map<int, std::vector<int>> micro_batch_;           ///< by data-parallel degree
  std::int64_t size_ = 0;
};

} // namespace foretrain
