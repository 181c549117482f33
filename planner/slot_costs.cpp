#include "planner/slot_costs.h"

#include <algorithm>

namespace foretrain {

void fill_slots(StepSlots& slots, Pass last) {
  SlotCosts& costs = slots.costs;
  for (auto* list : {&costs.forward, &costs.backward, &costs.input, &costs.weight, &costs.first_forward, &costs.last_backward})
    list->resize(slots.kinds.size());
  for (std::size_t at = 0; at < slots.kinds.size(); ++at) {
    const ChunkProfile& chunk = slots.profiles[slots.kinds[at]];
    costs.forward[at] = chunk.at(Pass::forward, Turn::middle).seconds;
    costs.first_forward[at] = chunk.at(Pass::forward, Turn::first).seconds - costs.forward[at];
    costs.backward[at] = chunk.at(Pass::backward, Turn::middle).seconds;
    costs.input[at] = chunk.at(Pass::input, Turn::middle).seconds;
    costs.weight[at] = chunk.at(Pass::weight, Turn::middle).seconds;
    costs.last_backward[at] = chunk.at(last, Turn::last).seconds - chunk.at(last, Turn::middle).seconds;
  }
}

void fill_after(StepSlots& slots) {
  slots.costs.after.clear();
  if (std::none_of(slots.profiles.begin(), slots.profiles.end(), [](const ChunkProfile& chunk) { return chunk.chained; })) return;
  slots.costs.after.resize(slots.kinds.size());
  for (std::size_t at = 0; at < slots.kinds.size(); ++at) {
    const ChunkProfile& chunk = slots.profiles[slots.kinds[at]];
    slots.costs.after[at] = {};
    if (!chunk.chained) continue;
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::input, Pass::weight})
      for (std::size_t before = 0; before < kPasses; ++before)
        slots.costs.after[at][slot_pass(pass) * kPasses + before] = chunk.after[slot_pass(pass)][before] - chunk.at(pass, Turn::middle).seconds;
  }
}

double queue_reductions(StepSlots& slots, std::size_t stage, const ScheduleShape& shape, Pass last) {
  constexpr int kWarm = 3; ///< micro-batches after which a profile's chain looks at the backlog
  const auto per_stage = static_cast<std::size_t>(shape.chunks);
  const int group = std::min(shape.micro_batches, shape.stages); // of one chunk in a row
  double queue = 0;
  for (std::size_t c = per_stage; c-- > 0;) {
    const std::size_t at = stage * per_stage + c;
    const ChunkProfile& chunk = slots.profiles[slots.kinds[at]];
    if (queue > 0) {
      const double beside = std::min(queue / chunk.reduction.beside, group * chunk.at(last, Turn::last).seconds);
      slots.costs.last_backward[at] += beside * (1 - chunk.reduction.interference);
      queue -= beside * chunk.reduction.beside;
    }
    queue += chunk.at(last, Turn::last).outstanding;
  }
  return queue + slots.profiles[slots.kinds[stage * per_stage]].backlog * std::max(0, shape.micro_batches - kWarm);
}

double compute_of(const StepSlots& slots, std::size_t stage, const ScheduleShape& shape) {
  const auto per_stage = static_cast<std::size_t>(shape.chunks);
  const int m = shape.micro_batches;
  double seconds = 0;
  for (std::size_t at = stage * per_stage; at < (stage + 1) * per_stage; ++at) {
    const ChunkProfile& chunk = slots.profiles[slots.kinds[at]];
    for (const auto* turns : {&chunk.forward, &chunk.backward, &chunk.input, &chunk.weight}) {
      const auto compute = [turns](Turn turn) { return (*turns)[static_cast<std::size_t>(turn)].compute; };
      seconds += compute(Turn::first) + (m > 1 ? compute(Turn::last) : 0) + std::max(0, m - 2) * compute(Turn::middle);
    }
  }
  return seconds;
}

} // namespace foretrain
