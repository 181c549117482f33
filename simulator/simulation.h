#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/spec/prediction.h"
#include "simulator/machine.h"

namespace foretrain {

/// Allocated bytes of one rank of a stage from `at` on, and the highest point until the next sample.
struct MemorySample {
  double at = 0; ///< seconds
  Bytes allocated;
  Bytes peak;
  bool operator==(const MemorySample&) const = default;
};

struct StageRun {
  double finish = 0;                ///< seconds: end of the last step of its ranks
  double compute = 0;               ///< seconds of compute, undisturbed
  double slowed = 0;                ///< seconds that transfers beside compute cost
  TimeParts parts{};                ///< of the stage's first rank; adds up to the step
  Bytes peak;                       ///< allocated, at op granularity
  std::vector<MemorySample> memory; ///< in time order; only when recorded
  bool operator==(const StageRun&) const = default;
};

/// One bar of the timeline.
struct TimelineEvent {
  int stage = 0;
  Lane lane = Lane::compute;
  TimePart part = TimePart::compute;
  std::string name;
  double start = 0; ///< seconds
  double end = 0;
  int micro_batch = -1;
  int layer = -1;
  bool operator==(const TimelineEvent&) const = default;
};

/// What a link carried.
struct LinkLoad {
  std::string name;
  double bytes = 0;
  double utilisation = 0; ///< of its capacity, over the step
  bool operator==(const LinkLoad&) const = default;
};

/// How much longer transfers took than undisturbed.
struct GroupLoad {
  std::string name; ///< group or "pipeline"
  std::int64_t transfers = 0;
  double seconds = 0;     ///< sum over transfers
  double undisturbed = 0; ///< the same without sharing
  bool operator==(const GroupLoad&) const = default;
};

struct Simulation {
  Seconds step_time;
  TimeParts time{}; ///< of the stage that waits least for others; adds up to the step
  int critical_stage = 0;
  std::vector<StageRun> stages;
  std::vector<TimelineEvent> events; ///< only when recorded
  std::vector<LinkLoad> links;       ///< SimGrid only: the busiest, busiest first
  std::vector<GroupLoad> groups;     ///< SimGrid only
  int ranks = 0;                     ///< simulated
  std::int64_t steps = 0;
  std::int64_t transfers = 0;
  bool operator==(const Simulation&) const = default;
};

/// Puts a run into words: parts, memory over issue order, timeline.
[[nodiscard]] Simulation summarise(const Script& script, const MachineRun& run);

/// Highest allocation of the role's ranks at op granularity, what stays for the whole step included.
[[nodiscard]] Bytes peak_of(const Script& script, int stage);

} // namespace foretrain
