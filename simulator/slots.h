#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulator/slot_order.h"

/// Replay at slot granularity: one step per forward or backward of a micro-batch on a stage. Exact for the given
/// durations and fast enough for a search over millions of layouts.
namespace foretrain {

/// Seconds. Tables "per chunk" are indexed stage * chunks + chunk, "per stage" by stage; those marked optional may be
/// empty, which is all zero.
struct SlotCosts {
  std::vector<double> forward;       ///< per chunk
  std::vector<double> backward;      ///< per chunk; schedules with a whole backward
  std::vector<double> input;         ///< per chunk; schedules that split it
  std::vector<double> weight;        ///< per chunk; schedules that split it
  std::vector<double> first_forward; ///< per chunk, optional: added to the chunk's first F (exposed parameter gather)
  std::vector<double> last_backward; ///< per chunk, optional: added to its last B, or W when split (exposed reduction)
  /// Per chunk, optional: added to a slot by its pass and the pass before it on the stage, [pass * kPasses + before]
  /// (transfers that go on beside the next slot).
  std::vector<std::array<double, kPasses * kPasses>> after;
  std::vector<double> forward_hold; ///< per chunk, optional: by how much transfers put off the forward if it follows at
                                    ///< once; a stage that waits for its input anyway does not feel it
  std::vector<double> backward_hold; ///< the same of its backward, or I when split
  std::vector<double> behind;        ///< per chunk, optional: added to its slot right after another chunk's last pass
                                     ///< (a reduction beside it)
  std::vector<bool> queued;          ///< per chunk, optional: that reduction outlasts the slot and crowds its transfer
  bool apart = false;                ///< no stage waits for another at the step's end: `SlotResult::seconds`
  std::vector<double> start;         ///< per stage, optional: when the stage may begin
  std::vector<double> tail;          ///< per stage, optional: after its last slot
  std::vector<double> p2p;           ///< per stage: one transfer between stage i and i + 1 (the last: and stage 0),
                                     ///< either direction; optional
  std::vector<double> gradient_p2p;  ///< the same of gradients; empty: as p2p
  std::vector<double> crowded; ///< the same beside another transfer through the same port, or beside the reduction
                               ///< that follows a last backward; empty: as p2p
};

/// Duration of a step of an order of this shape.
[[nodiscard]] double step_seconds(const StepKind& kind, const ScheduleShape& shape, const SlotCosts& costs);
/// What puts the step off that follows the one before it on its stage at once.
[[nodiscard]] double step_hold(const StepKind& kind, const ScheduleShape& shape, const SlotCosts& costs);
/// From the end of what the step needs on another stage until it can go on; `seconds` is its duration.
[[nodiscard]] double step_latency(const StepKind& kind, const ScheduleShape& shape, const SlotCosts& costs,
                                  double seconds);

/// How long a step takes. Where stages wait for one another at its end: until the latest end of a stage. Where they do
/// not (`SlotCosts::apart`), step after step: the longest own span of a stage, from its first slot (its start before
/// that included) until its end. Steps can follow one another so often, each put off by that time against the one
/// before: what a slot needs of its own step is put off as it is, and no stage begins a step before it has ended the
/// last. They cannot follow one another more often where the stage of that span is the first one, or never waits: it
/// then is a chain of slots that begins and ends on that stage. A stage of which neither is true could still begin
/// later and end as early, for what it waits for comes past its first slot; that is not taken off. The same measure:
/// sail-sg/zero-bubble-pipeline-parallelism@39f2c186 megatron/core/pipeline_parallel/zerobubble/scheduler/zb.py
/// manual_order, "Longest stage time".
struct SlotResult {
  double seconds = 0;            ///< the step
  std::vector<double> stage_end; ///< per stage, tail included
  std::vector<double> busy;      ///< per stage: its slots and their extras
  std::vector<double> bubble; ///< per stage: seconds - busy - tail; waiting for transfers and blocked by them included
};

/// Memory that replays reuse, so that calls after the first allocate nothing. One per thread.
struct SlotWorkspace {
  struct Cost {
    double hold = 0;
    double seconds = 0;
    double latency = 0;
    std::size_t stage = 0;
  };
  std::vector<Cost> costs;
  std::vector<double> ends;
  std::vector<double> clock;
};

/// Per stage, where in a list of steps its first one stands that is more than waiting.
[[nodiscard]] std::vector<std::size_t> first_steps(const std::vector<StepKind>& kinds,
                                                   const std::vector<std::uint32_t>& steps, std::size_t stages);

/// Replays `order` with `costs`: each stage runs its slots in order, each as soon as its input has arrived.
void replay_slots(const SlotOrder& order, const SlotCosts& costs, SlotWorkspace& workspace, SlotResult& result);

struct SlotTime {
  double start = 0;
  double end = 0;
};
/// Times of every slot, as SlotOrder::slots. For timelines; the numbers are those of `replay_slots`.
[[nodiscard]] std::vector<SlotTime> slot_times(const SlotOrder& order, const SlotCosts& costs);

} // namespace foretrain
