#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/spec/plan.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// The layouts of a study: every combination of the values of each dimension whose degrees multiply to the number of
/// devices. A dimension without values in the study takes every one that the semantics name; recomputation of whole
/// layers comes in quarters of a chunk, replicas of shards for frameworks of the fsdp family only (others when asked).
/// Counted exactly before anything is evaluated, so that progress is a fraction.
class LayoutSpace {
public:
  LayoutSpace(const Study& study, const Semantics& semantics);

  /// Layouts that will be visited.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Groups of layouts with the same degrees (tp, pp, cp, ep, etp, dp): the unit of parallel work.
  [[nodiscard]] std::size_t groups() const { return groups_.size(); }
  [[nodiscard]] std::int64_t group_size(std::size_t group) const;
  /// The degrees that the layouts of a group share; its other members are defaults.
  [[nodiscard]] const Layout& degrees(std::size_t group) const;
  using Visit = std::function<bool(const Layout&)>;
  /// Visits every layout of a group in a fixed order; stops when `visit` returns false. `admit` is asked once per
  /// schedule, sharding and offload, with the first layout that has them: what it refuses is not visited. Returns how
  /// many were left out so.
  std::int64_t visit_group(std::size_t group, const Visit& visit, const Visit& admit = {}) const;

private:
  struct Group {
    Layout degrees;
    std::int64_t size = 0;
  };
  struct Dimensions {
    std::vector<int> micro_batch;
    std::vector<bool> sequence_parallel;
    std::vector<ScheduleChoice> schedules;
    std::vector<ShardingChoice> sharding;
    std::vector<ContextChoice> context;
    std::vector<DispatchChoice> dispatch;
    std::vector<bool> offload;
  };
  [[nodiscard]] Dimensions dimensions_of(const Layout& degrees) const;
  static bool visit_inside(Layout& layout, const Dimensions& dimensions, const std::vector<RecomputeChoice>& recompute, const Visit& visit);

  Study study_;
  Semantics semantics_;
  std::vector<Group> groups_;
  std::int64_t size_ = 0;
};

} // namespace foretrain
