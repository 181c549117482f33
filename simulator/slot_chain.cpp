#include "simulator/slot_chain.h"

#include <algorithm>

#include "core/base/check.h"

namespace foretrain {
namespace {

constexpr double kEpsilon = 1e-15;
constexpr std::size_t kMemory = 8; ///< loads remembered: equal blocks have equal collectives

bool equal_transfers(const Op& a, const Op& b) {
  return a.collective == b.collective && a.group == b.group && a.dtype == b.dtype && a.bytes == b.bytes &&
         a.rounds == b.rounds;
}

} // namespace

const Load& SlotChain::load(const Op& op) {
  for (const auto& [known, load] : known_)
    if (equal_transfers(*known, op)) return *load;
  loads_.push_back(load_of(op, mesh_, cost_));
  const Load& load = loads_.back();
  if (load.duration() > 0) evidence_ = std::max(evidence_, load.evidence);
  if (known_.size() == kMemory) known_.erase(known_.begin());
  known_.emplace_back(&op, &load);
  return load;
}

void SlotChain::issue(const ChunkOp& between, int first, bool prefetched) {
  Unit unit;
  unit.slot = last_.size();
  const bool transfer = between.op.kind == OpKind::collective;
  const bool compute = between.op.stream == Stream::compute;
  if (!compute) {
    if (between.waits_for >= 0) unit.starts_with = first + between.waits_for;
    if (!between.before) unit.starts_after = first + between.position;
    if (between.needed_at >= 0) unit.needed_at = first + between.needed_at;
  }
  if (prefetched && unit.starts_with < 0 && unit.starts_after < 0 && !compute) return;
  if (transfer) {
    unit.load = &load(between.op);
  } else {
    const Cost cost = op_cost(between.op, mesh_, cost_, host_);
    if (cost.seconds > 0) evidence_ = std::max(evidence_, cost.evidence);
    if (compute) {
      unit.seconds = cost.seconds;
      unit.position = first + between.position; // it belongs to the block after it and waits for what that waits for
    } else {
      loads_.push_back({cost.seconds, 0, {}, 1, 1, cost.evidence});
      unit.load = &loads_.back();
    }
  }
  if (unit.needed_at >= 0) ++places_[static_cast<std::size_t>(unit.needed_at)].missing;
  queues_[compute ? 0 : between.op.stream == Stream::gradients ? 1 : 2].push_back(unit);
}

void SlotChain::add(const Chunk& chunk, Pass pass, const std::vector<const BlockTime*>& times,
                    const std::vector<const ChunkOp*>& between, bool prefetched) {
  const int count = static_cast<int>(chunk.blocks.size());
  const int first = static_cast<int>(places_.size());
  places_.resize(places_.size() + chunk.blocks.size());
  // Collectives chained by place, in order: one walk instead of a search at every block.
  constexpr int kNone = -1;
  std::vector<int> heads(chunk.blocks.size() * 2, kNone);
  std::vector<int> next(between.size(), kNone);
  for (std::size_t i = between.size(); i-- > 0;) {
    int& head = heads[static_cast<std::size_t>(between[i]->position) * 2 + (between[i]->before ? 0 : 1)];
    next[i] = head;
    head = static_cast<int>(i);
  }
  const auto issue_at = [&](int position, bool before) {
    for (int i = heads[static_cast<std::size_t>(position) * 2 + (before ? 0 : 1)]; i != kNone;
         i = next[static_cast<std::size_t>(i)])
      issue(*between[static_cast<std::size_t>(i)], first, prefetched);
  };
  for (int step = 0; step < count; ++step) {
    const int position = pass == Pass::forward ? step : count - 1 - step;
    issue_at(position, true);
    Unit unit;
    unit.block = times[static_cast<std::size_t>(position)];
    unit.slot = last_.size();
    unit.position = first + position;
    queues_[0].push_back(unit);
    issue_at(position, false);
  }
  last_.push_back(queues_[0].size());
}

std::vector<ChainSlot> SlotChain::run() {
  std::vector<ChainSlot> slots(last_.size());
  std::size_t slot = 0;
  std::vector<double> ends(last_.size(), 0);
  double now = 0;
  while (true) {
    for (bool again = true; again;) {
      again = false;
      for (std::size_t q = 0; q < kQueues; ++q) again = start(q) || again;
    }
    while (slot < last_.size() && next_[0] - (running_[0] ? 1 : 0) >= last_[slot]) ends[slot++] = now;
    if (streams_.idle()) break;
    const double step = streams_.advance();
    now += step;
    if (slot < slots.size()) book(slots[slot], step);
    for (std::size_t q = 0; q < kQueues; ++q)
      if (running_[q] && !(q == 0 ? streams_.computes() : streams_.transfers(q))) {
        const Unit& unit = queues_[q][next_[q] - 1];
        finish(q);
        if (q == 0) continue;
        for (std::size_t s = unit.slot; s < slot; ++s) slots[s].outstanding = std::max(slots[s].outstanding, now - ends[s]);
      }
  }
  for (std::size_t q = 0; q < kQueues; ++q)
    FORETRAIN_CHECK(next_[q] == queues_[q].size(), "every unit of a chain runs");
  for (std::size_t s = 0; s < slots.size(); ++s) slots[s].seconds = ends[s] - (s > 0 ? ends[s - 1] : 0);
  for (const Unit& unit : queues_[0]) slots[unit.slot].compute += unit.block ? unit.block->compute : unit.seconds;
  return slots;
}

/// True when something began or passed.
bool SlotChain::start(std::size_t queue) {
  if (running_[queue] || next_[queue] == queues_[queue].size() || !ready(queue)) return false;
  const Unit& unit = queues_[queue][next_[queue]++];
  running_[queue] = true;
  if (queue > 0) {
    streams_.transfer(queue, *unit.load);
    if (!streams_.transfers(queue)) finish(queue);
    return true;
  }
  if (unit.block) places_[static_cast<std::size_t>(unit.position)].begun = true;
  streams_.compute(unit.block ? unit.block->work : Work{unit.seconds, 1, {}, {}});
  if (!streams_.computes()) finish(queue);
  return true;
}

bool SlotChain::ready(std::size_t queue) const {
  const Unit& unit = queues_[queue][next_[queue]];
  if (queue == 0) return places_[static_cast<std::size_t>(unit.position)].missing == 0;
  if (unit.starts_with >= 0 && !places_[static_cast<std::size_t>(unit.starts_with)].begun) return false;
  return unit.starts_after < 0 || places_[static_cast<std::size_t>(unit.starts_after)].done;
}

void SlotChain::finish(std::size_t queue) {
  running_[queue] = false;
  const Unit& unit = queues_[queue][next_[queue] - 1];
  if (unit.block) places_[static_cast<std::size_t>(unit.position)].done = true;
  if (unit.needed_at >= 0) --places_[static_cast<std::size_t>(unit.needed_at)].missing;
}

/// Time passes: to the block that runs, else to data parallelism.
void SlotChain::book(ChainSlot& slot, double step) const {
  const BlockTime* block = running_[0] ? queues_[0][next_[0] - 1].block : nullptr;
  if (!block || block->seconds <= kEpsilon) {
    slot.parts[static_cast<std::size_t>(TimePart::dp)] += Seconds(step);
    return;
  }
  for (std::size_t p = 0; p < slot.parts.size(); ++p)
    slot.parts[p] += Seconds(step * block->parts[p].value / block->seconds);
}

} // namespace foretrain
