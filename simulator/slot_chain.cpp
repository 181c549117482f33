#include "simulator/slot_chain.h"

#include <algorithm>
#include <bit>

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
    } else {
      loads_.push_back({cost.seconds, 0, {}, 1, 1, cost.evidence});
      unit.load = &loads_.back();
    }
  }
  if (unit.needed_at >= 0) ++places_[static_cast<std::size_t>(unit.needed_at)].missing;
  queues_[compute ? 0 : between.op.stream == Stream::gradients ? 1 : 2].push_back(unit);
}

void SlotChain::add(const Chunk& chunk, Pass pass, const BlockTimes& times, const std::vector<const ChunkOp*>& between,
                    bool prefetched) {
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
    unit.block = &(*times[static_cast<std::size_t>(chunk.blocks[static_cast<std::size_t>(position)])])[slot_pass(pass)];
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
  while (true) {
    for (bool again = true; again;) {
      again = false;
      for (std::size_t q = 0; q < kQueues; ++q) again = start(q) || again;
    }
    while (slot < last_.size() && next_[0] - (running_[0] ? 1 : 0) >= last_[slot]) ends[slot++] = now_;
    if (fresh_ && streams_.alone()) { // nothing can begin before the block is done
      pass_block(slots[slot]);
      continue;
    }
    if (fresh_ && slot < slots.size() && again(slots[slot])) continue;
    fresh_ = false;
    if (streams_.idle()) break;
    const double step = streams_.advance();
    now_ += step;
    if (slot < slots.size()) book(slots[slot], step);
    for (std::size_t q = 0; q < kQueues; ++q)
      if (running_[q] && !(q == 0 ? streams_.computes() : streams_.transfers(q))) {
        if (q == 0 && go_on()) continue;
        if (q == 0) remember(slots[slot]);
        const Unit& unit = queues_[q][next_[q] - 1];
        finish(q);
        if (q == 0) continue;
        for (std::size_t s = unit.slot; s < slot; ++s)
          slots[s].outstanding = std::max(slots[s].outstanding, now_ - ends[s]);
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
    if (!fresh_) passage_.block = nullptr; // within a block, or between two
    if (queue == 1) reduction_began_ = now_;
    streams_.transfer(queue, *unit.load);
    if (!streams_.transfers(queue)) finish(queue);
    return true;
  }
  began_ = now_;
  stretch_ = 0;
  padding_ = false;
  if (unit.block) {
    places_[static_cast<std::size_t>(unit.position)].begun = true;
    fresh_ = go_on(); // one without work is done as it begins
    if (!fresh_) finish(queue);
  } else {
    streams_.compute({unit.seconds, true, 1, {}, {}});
    if (!streams_.computes()) finish(queue);
  }
  return true;
}

/// The next stretch of the block that runs, or what its host needs beyond its kernels; false: it is done.
bool SlotChain::go_on() {
  const BlockTime* block = queues_[0][next_[0] - 1].block;
  if (!block) return false;
  while (stretch_ < block->work.size()) {
    streams_.compute(block->work[stretch_++]);
    if (streams_.computes()) return true;
  }
  if (padding_ || block->pad <= 0 || began_ + block->seconds - now_ <= kEpsilon) return false;
  padding_ = true;
  streams_.compute({began_ + block->seconds - now_, false, 1, {}, {}});
  return true;
}

/// The only transfer under way, when it is a reduction that begins now; null: none such.
const Load* SlotChain::begins_with_block() const {
  if (!running_[1] || running_[2] || reduction_began_ != now_) return nullptr;
  return queues_[1][next_[1] - 1].load;
}

void SlotChain::repeat_passage(ChainSlot& slot) {
  now_ += passage_.seconds;
  for (std::size_t p = 0; p < slot.parts.size(); ++p) slot.parts[p] += passage_.parts[p];
  streams_.compute({});
  fresh_ = false;
  finish(0);
}

/// The block that has just begun, as the one like it before; false: it runs step by step.
bool SlotChain::again(ChainSlot& slot) {
  const BlockTime* block = queues_[0][next_[0] - 1].block;
  const Load* whole = begins_with_block();
  const auto waits = [this](std::size_t queue) { return next_[queue] == queues_[queue].size() || !ready(queue); };
  if (whole && passage_.block == block && passage_.whole == whole && waits(1) && waits(2)) {
    streams_.stop(1);
    finish(1);
    repeat_passage(slot);
    return true;
  }
  if (through_ && passage_.block == block && streams_.repeat(passage_.before, passage_.after)) {
    repeat_passage(slot);
    return true;
  }
  passage_.whole = nullptr;
  beginning_ = whole;
  through_ = false;
  passage_.block = block;
  passage_.before = streams_.flows();
  passage_began_ = now_;
  parts_before_ = slot.parts;
  return false;
}

/// The block that ends now, as a measure for those after it.
void SlotChain::remember(const ChainSlot& slot) {
  if (through_ || passage_.block != queues_[0][next_[0] - 1].block) return;
  passage_.after = streams_.flows();
  if (streams_.alone()) passage_.whole = beginning_;
  through_ = passage_.before.running == passage_.after.running && passage_.before.moving;
  for (std::uint32_t bits = passage_.after.running; through_ && bits != 0; bits &= bits - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(bits));
    for (std::size_t port = 0; port < kPorts; ++port)
      through_ = through_ && passage_.after.left[lane][port] <= passage_.before.left[lane][port] &&
                 (passage_.before.left[lane][port] > 0) == (passage_.after.left[lane][port] > 0);
  }
  passage_.seconds = now_ - passage_began_;
  for (std::size_t p = 0; p < slot.parts.size(); ++p) passage_.parts[p] = slot.parts[p] - parts_before_[p];
}

/// The block that has just begun, undisturbed.
void SlotChain::pass_block(ChainSlot& slot) {
  const BlockTime& block = *queues_[0][next_[0] - 1].block;
  now_ += block.seconds;
  for (std::size_t p = 0; p < slot.parts.size(); ++p) slot.parts[p] += block.parts[p];
  streams_.compute({});
  fresh_ = false;
  finish(0);
}

bool SlotChain::ready(std::size_t queue) const {
  const Unit& unit = queues_[queue][next_[queue]];
  if (queue == 0) return unit.position < 0 || places_[static_cast<std::size_t>(unit.position)].missing == 0;
  if (unit.starts_with >= 0 && !places_[static_cast<std::size_t>(unit.starts_with)].begun) return false;
  return unit.starts_after < 0 || places_[static_cast<std::size_t>(unit.starts_after)].done;
}

void SlotChain::finish(std::size_t queue) {
  running_[queue] = false;
  const Unit& unit = queues_[queue][next_[queue] - 1];
  if (unit.block) places_[static_cast<std::size_t>(unit.position)].done = true;
  if (unit.needed_at >= 0) --places_[static_cast<std::size_t>(unit.needed_at)].missing;
}

/// Time passes: to the block that runs or its host, else to data parallelism.
void SlotChain::book(ChainSlot& slot, double step) const {
  constexpr auto kHost = static_cast<std::size_t>(TimePart::host);
  const BlockTime* block = running_[0] ? queues_[0][next_[0] - 1].block : nullptr;
  if (padding_) {
    slot.parts[kHost] += Seconds(step);
    return;
  }
  const double kernels = block ? block->seconds - block->pad : 0;
  if (kernels <= kEpsilon) {
    slot.parts[static_cast<std::size_t>(TimePart::dp)] += Seconds(step);
    return;
  }
  for (std::size_t p = 0; p < slot.parts.size(); ++p)
    slot.parts[p] += Seconds(step * (block->parts[p].value - (p == kHost ? block->pad : 0)) / kernels);
}

} // namespace foretrain
