#include "simulator/rank_state.h"

#include <algorithm>

namespace foretrain {
namespace {

bool wait(RankState& state, LaneRun& run, Lane lane, int count) {
  if (state.lanes[at(lane)].done >= count) return true;
  run.state = LaneState::blocked;
  run.blocked_on = lane;
  run.need = count;
  return false;
}

} // namespace

bool may_begin(RankState& state, LaneRun& run, const ScriptInstruction& instruction, const ScriptStep& step) {
  if (step.after >= 0 && !wait(state, run, Lane::compute, instruction.base[at(Lane::compute)] + step.after))
    return false;
  if (step.entry)
    for (const Dependency& dependency : instruction.waits)
      if (!wait(state, run, dependency.lane, dependency.count)) return false;
  for (const Dependency& dependency : step.waits)
    if (!wait(state, run, dependency.lane, instruction.base[at(dependency.lane)] + dependency.count)) return false;
  return true;
}

double compute_rate(const RankState& state) {
  return 1 / (1 + *std::max_element(state.slowdown.begin(), state.slowdown.end()));
}

double shared_speed(int ranks, int computing, int sharing) {
  return std::min<double>(sharing, static_cast<double>(ranks) / std::max(1, computing));
}

} // namespace foretrain
