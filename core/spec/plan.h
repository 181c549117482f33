#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/model.h"

namespace foretrain {

/// One way to run a job: everything a prediction depends on, apart from the calibration.
struct Plan {
  ModelSpec model;
  ClusterSpec cluster;
  JobSpec job;
  Layout layout;
  bool operator==(const Plan&) const = default;
};

enum class Objective {
  step_time,
  throughput,      ///< tokens per second per device
  memory_headroom, ///< largest distance to the capacity among those that fit
  cost,            ///< currency per token; needs cost_per_device_hour
};

/// Values a search may try. An empty list means every value the semantics and the cluster allow.
struct SearchSpace {
  std::vector<int> tp;
  std::vector<int> pp;
  std::vector<int> cp;
  std::vector<int> ep;
  std::vector<int> etp;
  std::vector<int> dp_replicate;
  std::vector<int> micro_batch;
  std::vector<bool> sequence_parallel;
  std::vector<std::string> schedules;
  std::vector<int> chunks;
  std::vector<int> groups = {0}; ///< `ScheduleChoice::group`
  std::vector<ShardingKind> sharding;
  std::vector<ContextKind> context_parallel;
  std::vector<DispatchKind> expert_dispatch;
  std::vector<RecomputeKind> recompute;
  std::vector<bool> offload_optimizer = {false};
  std::vector<bool> overlap_tp = {false}; ///< `Layout::overlap.tp`
  bool operator==(const SearchSpace&) const = default;
};

struct Study {
  ModelSpec model;
  ClusterSpec cluster;
  JobSpec job;
  SearchSpace space;
  Objective objective = Objective::step_time;
  std::string where; ///< filter expression over fields; empty = all
  bool operator==(const Study&) const = default;
};

} // namespace foretrain
