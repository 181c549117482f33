#include "simulator/slots.h"

#include <algorithm>

#include "core/base/check.h"

namespace foretrain {
namespace {

double at(const std::vector<double>& optional, std::size_t index) {
  return optional.empty() ? 0 : optional[index];
}

/// One transfer over a boundary.
double transfer(const SlotCosts& costs, std::size_t boundary, bool crowded) {
  return at(crowded && !costs.crowded.empty() ? costs.crowded : costs.p2p, boundary);
}

bool takes_gradient(StepSource source) {
  return source == StepSource::backward || source == StepSource::last_backward || source == StepSource::input;
}

/// What transfers that slots before left behind add.
double context(const StepKind& kind, Pass pass, std::size_t chunk, const SlotCosts& costs) {
  const double behind = kind.follows ? at(costs.behind, chunk) : 0;
  if (costs.after.empty() || kind.before == Pass::step) return behind;
  return behind + costs.after[chunk][slot_pass(pass) * kPasses + slot_pass(kind.before)];
}

void check_sizes(const SlotOrder& order, const SlotCosts& costs) {
  const std::size_t stages = order.stages();
  const std::size_t chunks = stages * static_cast<std::size_t>(order.shape.chunks);
  const auto optional = [](const std::vector<double>& table, std::size_t size) {
    return table.empty() || table.size() == size;
  };
  FORETRAIN_CHECK(costs.forward.size() == chunks, "a forward time per chunk");
  if (order.split_backward)
    FORETRAIN_CHECK(costs.input.size() == chunks && costs.weight.size() == chunks, "an I and a W time per chunk");
  else
    FORETRAIN_CHECK(costs.backward.size() == chunks, "a backward time per chunk");
  FORETRAIN_CHECK(optional(costs.first_forward, chunks) && optional(costs.last_backward, chunks) &&
                      optional(costs.behind, chunks) && optional(costs.forward_hold, chunks) &&
                      optional(costs.backward_hold, chunks) && (costs.queued.empty() || costs.queued.size() == chunks),
                  "extras per chunk");
  FORETRAIN_CHECK(costs.after.empty() || costs.after.size() == chunks, "what goes on per chunk");
  FORETRAIN_CHECK(optional(costs.start, stages) && optional(costs.tail, stages) && optional(costs.p2p, stages) &&
                      optional(costs.crowded, stages) && optional(costs.gradient_p2p, stages),
                  "times per stage");
}

/// Fills workspace.ends, workspace.clock and busy.
void run(const SlotOrder& order, const SlotCosts& costs, SlotWorkspace& workspace, std::vector<double>& busy) {
  check_sizes(order, costs);
  const std::size_t stages = order.stages();
  busy.assign(stages, 0.0);
  workspace.costs.resize(order.kinds.size());
  for (std::size_t k = 0; k < order.kinds.size(); ++k) {
    const StepKind& kind = order.kinds[k];
    const double seconds = step_seconds(kind, order.shape, costs);
    const double latency = step_latency(kind, order.shape, costs, seconds);
    workspace.costs[k] = {step_hold(kind, order.shape, costs), seconds, latency, kind.stage};
    if (kind.source < StepSource::wait) busy[kind.stage] += seconds * kind.count;
  }
  const std::size_t first = order.first_step();
  const std::size_t steps = order.kind.size();
  workspace.ends.resize(first + steps);
  workspace.clock.resize(stages);
  for (std::size_t i = 0; i < stages; ++i) workspace.ends[i] = workspace.clock[i] = at(costs.start, i);
  workspace.ends[stages] = 0;

  const SlotWorkspace::Cost* const table = workspace.costs.data();
  const std::uint32_t* const kind = order.kind.data();
  const std::uint32_t* const after = order.after.data();
  double* const ends = workspace.ends.data();
  double* const clock = workspace.clock.data();
  for (std::size_t k = 0; k < steps; ++k) {
    const SlotWorkspace::Cost& cost = table[kind[k]];
    const double end = std::max(clock[cost.stage] + cost.hold, ends[after[k]] + cost.latency) + cost.seconds;
    ends[first + k] = end;
    clock[cost.stage] = end;
  }
}

/// When each stage begins its own span: `run` has filled the workspace.
void begins(const SlotOrder& order, const SlotCosts& costs, const SlotWorkspace& workspace,
            std::vector<double>& begin) {
  const std::vector<std::size_t> first = first_steps(order.kinds, order.kind, order.stages());
  for (std::size_t stage = 0; stage < first.size(); ++stage) {
    const SlotWorkspace::Cost& cost = workspace.costs[order.kind[first[stage]]];
    begin[stage] =
        workspace.ends[order.first_step() + first[stage]] - cost.seconds - cost.hold - at(costs.start, stage);
  }
}

} // namespace

std::vector<std::size_t> first_steps(const std::vector<StepKind>& kinds, const std::vector<std::uint32_t>& steps,
                                     std::size_t stages) {
  std::vector<std::size_t> first(stages, steps.size());
  std::size_t found = 0;
  for (std::size_t k = 0; k < steps.size() && found < stages; ++k) {
    const StepKind& kind = kinds[steps[k]];
    if (kind.source == StepSource::wait || first[kind.stage] < steps.size()) continue;
    first[kind.stage] = k;
    ++found;
  }
  FORETRAIN_CHECK(found == stages, "every stage has a slot");
  return first;
}

double step_seconds(const StepKind& kind, const ScheduleShape& shape, const SlotCosts& costs) {
  const std::size_t stages = static_cast<std::size_t>(shape.stages);
  const std::size_t chunk = kind.stage * static_cast<std::size_t>(shape.chunks) + kind.chunk;
  const std::size_t previous = kind.stage == 0 ? stages - 1 : kind.stage - 1;
  switch (kind.source) {
  case StepSource::forward:
    return costs.forward[chunk] + context(kind, Pass::forward, chunk, costs);
  case StepSource::first_forward:
    return costs.forward[chunk] + at(costs.first_forward, chunk) + context(kind, Pass::forward, chunk, costs);
  case StepSource::backward:
    return costs.backward[chunk] + context(kind, Pass::backward, chunk, costs);
  case StepSource::last_backward:
    return costs.backward[chunk] + at(costs.last_backward, chunk) + context(kind, Pass::backward, chunk, costs);
  case StepSource::input:
    return costs.input[chunk] + context(kind, Pass::input, chunk, costs);
  case StepSource::weight:
    return costs.weight[chunk] + context(kind, Pass::weight, chunk, costs);
  case StepSource::last_weight:
    return costs.weight[chunk] + at(costs.last_backward, chunk) + context(kind, Pass::weight, chunk, costs);
  case StepSource::wait:
    return 0;
  case StepSource::transfer_next:
    return transfer(costs, kind.stage, kind.crowded_batch);
  case StepSource::transfer_prev:
    return transfer(costs, previous, kind.crowded_batch);
  case StepSource::transfer_both:
    return std::max(transfer(costs, kind.stage, kind.crowded_batch), transfer(costs, previous, kind.crowded_batch));
  }
  return 0;
}

double step_hold(const StepKind& kind, const ScheduleShape& shape, const SlotCosts& costs) {
  const std::size_t chunk = kind.stage * static_cast<std::size_t>(shape.chunks) + kind.chunk;
  if (kind.source == StepSource::forward || kind.source == StepSource::first_forward)
    return at(costs.forward_hold, chunk);
  return takes_gradient(kind.source) ? at(costs.backward_hold, chunk) : 0;
}

double step_latency(const StepKind& kind, const ScheduleShape& shape, const SlotCosts& costs, double seconds) {
  if (kind.boundary < 0) return 0;
  const std::size_t chunk = kind.stage * static_cast<std::size_t>(shape.chunks) + kind.chunk;
  const bool queued = kind.follows && !costs.queued.empty() && costs.queued[chunk];
  const auto boundary = static_cast<std::size_t>(kind.boundary);
  if (takes_gradient(kind.source) && !kind.crowded && !queued && !costs.gradient_p2p.empty())
    return costs.gradient_p2p[boundary];
  const double latency = transfer(costs, boundary, kind.crowded || queued);
  return kind.source > StepSource::wait ? latency - seconds
                                        : latency; // the transfer itself, when the other end is last
}

void replay_slots(const SlotOrder& order, const SlotCosts& costs, SlotWorkspace& workspace, SlotResult& result) {
  run(order, costs, workspace, result.busy);
  const std::size_t stages = order.stages();
  result.stage_end.resize(stages);
  result.bubble.resize(stages);
  result.seconds = 0;
  std::vector<double> begin(stages, 0.0);
  if (costs.apart) begins(order, costs, workspace, begin);
  for (std::size_t i = 0; i < stages; ++i) {
    result.stage_end[i] = workspace.clock[i] + at(costs.tail, i);
    result.seconds = std::max(result.seconds, result.stage_end[i] - begin[i]);
  }
  for (std::size_t i = 0; i < stages; ++i) result.bubble[i] = result.seconds - result.busy[i] - at(costs.tail, i);
}

std::vector<SlotTime> slot_times(const SlotOrder& order, const SlotCosts& costs) {
  SlotWorkspace workspace;
  std::vector<double> busy;
  run(order, costs, workspace, busy);
  std::vector<SlotTime> times(order.slots.size());
  for (std::size_t s = 0; s < times.size(); ++s) {
    const std::uint32_t step = order.step_of[s];
    const double arrival = workspace.ends[order.after[step]] + workspace.costs[order.kind[step]].latency;
    const double hold = workspace.costs[order.kind[step]].hold;
    times[s] = {std::max(workspace.ends[order.previous_of[s]] + hold, arrival),
                workspace.ends[order.first_step() + step]};
  }
  return times;
}

} // namespace foretrain
