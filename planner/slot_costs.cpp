#include "planner/slot_costs.h"

#include <algorithm>
#include <array>

namespace foretrain {

void fill_slots(StepSlots& slots, Pass last) {
  SlotCosts& costs = slots.costs;
  for (auto* list :
       {&costs.forward, &costs.backward, &costs.input, &costs.weight, &costs.first_forward, &costs.last_backward})
    list->resize(slots.kinds.size());
  costs.behind.assign(slots.kinds.size(), 0);
  costs.queued.assign(slots.kinds.size(), false);
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
  if (std::none_of(slots.profiles.begin(), slots.profiles.end(),
                   [](const ChunkProfile& chunk) { return chunk.chained; }))
    return;
  slots.costs.after.resize(slots.kinds.size());
  for (std::size_t at = 0; at < slots.kinds.size(); ++at) {
    const ChunkProfile& chunk = slots.profiles[slots.kinds[at]];
    slots.costs.after[at] = {};
    if (!chunk.chained) continue;
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::input, Pass::weight})
      for (std::size_t before = 0; before < kPasses; ++before)
        slots.costs.after[at][slot_pass(pass) * kPasses + before] =
            chunk.after[slot_pass(pass)][before] - chunk.at(pass, Turn::middle).seconds;
  }
}

void queue_reductions(StepSlots& slots, const ScheduleShape& shape, Pass last, std::vector<double>& left) {
  constexpr int kWarm = 3; ///< micro-batches after which a profile's chain looks at the backlog
  const auto per_stage = static_cast<std::size_t>(shape.chunks);
  const int short_turn = shape.micro_batches % shape.turn();
  const int group = short_turn == 0 ? shape.turn() : short_turn; // of one chunk in a row, at the end
  /// Slots of a kind of chunk beside what another kind left: stages share most of both.
  struct Known {
    std::uint32_t kind = 0;
    std::uint32_t before = 0;
    double seconds = 0;
    Beside beside;
  };
  std::vector<Known> known;
  const auto beside = [&](std::uint32_t kind, std::uint32_t before, const Load& queue) {
    for (const Known& one : known)
      if (one.kind == kind && one.before == before && one.seconds == queue.seconds) return one.beside;
    const ChunkProfile& chunk = slots.profiles[kind];
    const BlockTime& begins = *chunk.begins[slot_pass(last)];
    known.push_back({kind, before, queue.seconds, beside_blocks(queue, begins.work, begins.pad, chunk.blocks * group)});
    return known.back().beside;
  };
  left.resize(static_cast<std::size_t>(shape.stages));
  for (std::size_t stage = 0; stage < left.size(); ++stage) {
    Load queue;
    std::uint32_t before = 0;
    for (std::size_t c = per_stage; c-- > 0;) {
      const std::size_t at = stage * per_stage + c;
      const ChunkProfile& chunk = slots.profiles[slots.kinds[at]];
      if (queue.seconds > 0) {
        const Beside meanwhile = beside(slots.kinds[at], before, queue);
        slots.costs.behind[at] = meanwhile.delay;
        slots.costs.queued[at] = meanwhile.lasts > chunk.at(last, Turn::middle).seconds;
        queue.seconds = meanwhile.left;
      }
      const double rest = queue.seconds;
      if (chunk.reduction.seconds > 0) {
        queue = chunk.reduction;
        before = slots.kinds[at];
      }
      queue.seconds = rest + chunk.at(last, Turn::last).outstanding;
    }
    const double backlog = slots.profiles[slots.kinds[stage * per_stage]].backlog;
    left[stage] = queue.seconds + backlog * std::max(0, shape.micro_batches - kWarm);
  }
}

void go_beside(StepSlots& slots, const ScheduleShape& shape, const std::vector<Load>& transfers, Pass gradient) {
  const auto stages = static_cast<std::size_t>(shape.stages);
  const auto per_stage = static_cast<std::size_t>(shape.chunks);
  SlotCosts& costs = slots.costs;
  costs.forward_hold.resize(slots.kinds.size());
  costs.backward_hold.resize(slots.kinds.size());
  costs.gradient_p2p = costs.p2p;
  /// A kind of chunk beside a transfer: stages share most of both.
  struct Known {
    std::uint32_t kind = 0;
    double seconds = 0; ///< of the transfer, alone
    std::array<Beside, 2> beside;
  };
  std::vector<Known> known;
  const auto beside = [&](std::uint32_t kind, const Load& transfer) -> const std::array<Beside, 2>& {
    for (const Known& one : known)
      if (one.kind == kind && one.seconds == transfer.duration()) return one.beside;
    const ChunkProfile& chunk = slots.profiles[kind];
    const auto pass = [&](Pass which) {
      const BlockTime& begins = *chunk.begins[slot_pass(which)];
      return beside_blocks(transfer, begins.work, begins.pad, chunk.blocks);
    };
    known.push_back({kind, transfer.duration(), {pass(Pass::forward), pass(gradient)}});
    return known.back().beside;
  };
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const Load& transfer = transfers[stage];
    for (std::size_t c = 0; c < per_stage; ++c) {
      const std::size_t at = stage * per_stage + c;
      const std::array<Beside, 2>& both = beside(slots.kinds[at], transfer);
      const std::size_t depth = c * stages + stage;
      // One that comes and one that goes use opposite halves of the port: what both slow, they slow at once where they
      // meet. They do for about half of their time (over sampled pipelines one is too little, two are too much).
      const bool both_ways = depth > 0 && depth + 1 < stages * per_stage;
      const double count = both_ways ? 1.5 : 1;
      costs.forward_hold[at] = count * both[0].delay;
      costs.backward_hold[at] = count * both[1].delay;
      if (c > 0) continue;
      costs.p2p[stage] = std::max(costs.p2p[stage], both[0].lasts);
      costs.gradient_p2p[stage] = std::max(costs.gradient_p2p[stage], both[1].lasts);
    }
    const Load& reduction = slots.profiles[slots.kinds[(stage + 1) % stages * per_stage + per_stage - 1]].reduction;
    costs.crowded[stage] = costs.gradient_p2p[stage];
    if (reduction.seconds > 0)
      costs.crowded[stage] = std::max(costs.crowded[stage], beside_transfer(transfer, reduction));
  }
}

double working(const ChunkProfile& chunk, int micro_batches) {
  double seconds = 0;
  for (const auto* turns : {&chunk.forward, &chunk.backward, &chunk.input, &chunk.weight}) {
    const auto works = [turns](Turn turn) {
      const SlotTimeOf& slot = (*turns)[static_cast<std::size_t>(turn)];
      return slot.compute + slot.parts[static_cast<std::size_t>(TimePart::host)].value;
    };
    seconds += works(Turn::first) + (micro_batches > 1 ? works(Turn::last) : 0) +
               std::max(0, micro_batches - 2) * works(Turn::middle);
  }
  return seconds;
}

} // namespace foretrain
