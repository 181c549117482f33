#include "planner/ties.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace foretrain {
namespace {

constexpr double kOwnShare = 0.2; // estimate where no data folder is given
constexpr double kFree = 0.1;     // of the device's memory

bool ties(const Candidate& candidate, const Prediction& best, const std::optional<Intervals>& intervals) {
  const double step = best.step_time.value;
  const double reach = intervals ? step * time_interval(*intervals, best).own_high
                                 : step + kOwnShare * (best.step_time_interval[1].value - step);
  return candidate.prediction.step_time.value <= reach;
}

std::int64_t device_bytes(const Prediction& prediction) {
  std::int64_t highest = 0;
  for (const StageMemory& stage : prediction.memory) highest = std::max(highest, stage.device.value);
  return highest;
}

} // namespace

int tied_with_best(const std::vector<Candidate>& ranked, const std::optional<Intervals>& intervals) {
  if (ranked.empty()) return 0;
  const Prediction& best = ranked.front().prediction;
  return static_cast<int>(
      std::count_if(ranked.begin(), ranked.end(), [&](const Candidate& c) { return ties(c, best, intervals); }));
}

int moving_parts(const Layout& layout) {
  int parts = 0;
  for (const int degree : {layout.tp, layout.pp, layout.cp, layout.ep, layout.etp, layout.dp_replicate})
    parts += degree > 1 ? 1 : 0;
  parts += layout.sequence_parallel ? 1 : 0;
  parts += layout.overlap.tp ? 1 : 0;
  parts += layout.schedule.chunks > 1 ? 1 : 0;
  parts += layout.schedule.group > 0 ? 1 : 0;
  parts += layout.pp > 1 && layout.schedule.kind.rfind("zb-", 0) == 0 ? 1 : 0;
  parts += layout.sharding.kind == ShardingKind::gradients || layout.sharding.kind == ShardingKind::parameters ? 1 : 0;
  parts += layout.recompute.kind != RecomputeKind::none ? 1 : 0;
  parts += layout.offload.optimizer ? 1 : 0;
  parts += layout.layers_per_stage.empty() ? 0 : 1;
  return parts;
}

int preferred_of(const std::vector<Candidate>& ranked, const std::optional<Intervals>& intervals,
                 std::optional<Bytes> capacity) {
  if (ranked.empty()) return -1;
  const auto key = [&](const Candidate& candidate) {
    const std::int64_t bytes = device_bytes(candidate.prediction);
    const bool tight = capacity && static_cast<double>(bytes) > (1 - kFree) * static_cast<double>(capacity->value);
    return std::tuple(tight, moving_parts(candidate.layout), bytes, candidate.prediction.step_time.value);
  };
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < ranked.size(); ++i)
    if (ties(ranked[i], ranked.front().prediction, intervals) && key(ranked[i]) < key(ranked[chosen])) chosen = i;
  return static_cast<int>(chosen);
}

} // namespace foretrain
