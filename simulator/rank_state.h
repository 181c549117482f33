#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/script.h"

/// What the rank machine knows about a rank while it runs.
namespace foretrain {

enum class LaneState { idle, blocked, busy, finished };

struct LaneRun {
  LaneState state = LaneState::idle;
  Lane blocked_on = Lane::compute;
  int need = 0; ///< steps of `blocked_on` that must be done
  int done = 0;
  int cursor = 0;                    ///< index into RoleScript::by_lane
  int next = 0;                      ///< index into ScriptSlot::by_lane
  double started = 0;                ///< when the running or the last step began; transfers: when bytes began to move
  double ended = 0;                  ///< when the last step ended
  TimePart part = TimePart::compute; ///< of the running or the last step
  bool bubble_before = false;        ///< time before `started` is waiting for another stage
  std::uint32_t version = 0;         ///< timers of older versions are stale
};

struct RankState {
  const RoleScript* role = nullptr;
  std::array<LaneRun, kLanes> lanes;
  double remaining = 0; ///< of the running compute step
  double updated = 0;
  double rate = 1;
  bool slows = false;                    ///< the running compute step gives way to transfers
  std::array<double, kLanes> slowdown{}; ///< of the transfer that runs on each lane
  double block_began = 0;
  bool computes = false;              ///< as the transfers on this rank have been told
  bool touched = false;               ///< its compute lane has changed in this round
  std::array<int, kLanes> transfer{}; ///< that runs on each lane, plus 1; 0 none
  double idle_since = 0;              ///< the compute lane has been waiting from here
  bool recorded = false;
  bool apart = false;           ///< its step is timed apart from those of other stages (Program::post_validation)
  bool began = false;           ///< its compute lane has begun a step that takes time
  std::vector<double> gathered; ///< ends of steps of its parameters lane until then
  double own_ready = 0;         ///< when the gathers that its first compute needs were done
};

/// Whether what the step waits for is done; if not, the lane is blocked on the first dependency that is missing.
[[nodiscard]] bool may_begin(RankState& state, LaneRun& run, const ScriptInstruction& instruction,
                             const ScriptStep& step);

/// Rate of compute beside the transfers under way. The one that takes most decides: two at once contend for the same
/// processors.
[[nodiscard]] double compute_rate(const RankState& state);

/// How much faster than with all `ranks` computing compute gets where `computing` of them do and `sharing` have a
/// processor: one of several processors has no favourites, so that only the mean is told.
[[nodiscard]] double shared_speed(int ranks, int computing, int sharing);

struct RankLane {
  int rank = 0;
  Lane lane = Lane::compute;
};

struct Active {
  int instance = -1;
  int from = -1;
  int to = -1;
  Lane lane = Lane::tp;
  const Traffic* traffic = nullptr;
  int computing = 0; ///< members that compute meanwhile
};

} // namespace foretrain
