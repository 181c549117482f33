#include "simulator/slot_memory.h"

#include <algorithm>

#include "core/base/check.h"

namespace foretrain {
namespace {

/// The memory of each kind of slot of one stage.
class StageMemories {
public:
  StageMemories(const SlotOrder& order, const SlotMemories& memories, std::size_t stage)
      : memories_(memories), first_(stage * static_cast<std::size_t>(order.shape.chunks)),
        chunks_(static_cast<std::size_t>(order.shape.chunks)), split_(order.split_backward) {
    const std::size_t size = order.stages() * chunks_;
    FORETRAIN_CHECK(memories.forward.size() == size, "the memory of a forward per chunk");
    FORETRAIN_CHECK(split_ ? memories.input.size() == size && memories.weight.size() == size
                           : memories.backward.size() == size,
                    "the memory of a backward per chunk");
  }

  const SlotMemory& of(const StepKind& kind) const {
    const std::size_t index = first_ + kind.chunk;
    switch (kind.source) {
    case StepSource::forward:
      return memories_.forward[index];
    case StepSource::first_forward:
      return memories_.first_forward.empty() ? memories_.forward[index] : memories_.first_forward[index];
    case StepSource::backward:
      return memories_.backward[index];
    case StepSource::last_backward:
      return memories_.last_backward.empty() ? memories_.backward[index] : memories_.last_backward[index];
    case StepSource::input:
      return memories_.input[index];
    case StepSource::weight:
      return memories_.weight[index];
    case StepSource::last_weight:
      return memories_.last_backward.empty() ? memories_.weight[index] : memories_.last_backward[index];
    case StepSource::wait:
    case StepSource::transfer_next:
    case StepSource::transfer_prev:
    case StepSource::transfer_both:
      break;
    }
    FORETRAIN_CHECK(false, "a slot");
    return memories_.forward[index];
  }

  bool free_what_they_retain() const {
    for (std::size_t index = first_; index < first_ + chunks_; ++index) {
      const Bytes freed =
          split_ ? memories_.input[index].net + memories_.weight[index].net : memories_.backward[index].net;
      if (memories_.forward[index].net + freed != Bytes{}) return false;
    }
    return true;
  }

private:
  const SlotMemories& memories_;
  std::size_t first_;
  std::size_t chunks_;
  bool split_;
};

/// Folds slots in order; the first one that reaches the peak is kept.
class Fold {
public:
  explicit Fold(Bytes boundary) : boundary_(boundary) {}
  void visit(const SlotMemory& memory, InFlight in_flight, std::size_t slot) {
    const Bytes beside = level_ + boundary_ * in_flight.beside;
    const Bytes highest = beside + std::max(memory.peak, memory.end + boundary_ * in_flight.after);
    if (highest > peak_.bytes) peak_ = {highest, slot};
    level_ = level_ + memory.net;
  }
  const SlotPeak& peak() const { return peak_; }

private:
  Bytes boundary_;
  Bytes level_;
  SlotPeak peak_;
};

} // namespace

SlotPeak slot_peak_full(const SlotOrder& order, const SlotMemories& memories, std::size_t stage) {
  const StageMemories stage_memories(order, memories, stage);
  const std::size_t slots = order.offset[stage + 1] - order.offset[stage];
  Fold fold(memories.boundary);
  for (std::size_t index = 0; index < slots; ++index)
    fold.visit(stage_memories.of(order.kind_of(stage, index)), order.in_flight[order.offset[stage] + index], index);
  return fold.peak();
}

SlotPeak slot_peak(const SlotOrder& order, const SlotMemories& memories, std::size_t stage) {
  const StageMemories stage_memories(order, memories, stage);
  if (!stage_memories.free_what_they_retain()) return slot_peak_full(order, memories, stage);
  Fold fold(memories.boundary);
  for (std::size_t k = order.fold_offset[stage]; k < order.fold_offset[stage + 1]; ++k)
    fold.visit(stage_memories.of(order.kinds[order.fold_kind[k]]), order.fold_in_flight[k], order.fold_slot[k]);
  return fold.peak();
}

std::vector<int> slots_before(const SlotOrder& order, std::size_t stage, std::size_t index) {
  const std::size_t chunks = static_cast<std::size_t>(order.shape.chunks);
  std::vector<int> counts(kSlotSources * chunks, 0);
  for (std::size_t slot = 0; slot < index; ++slot) {
    const StepKind& kind = order.kind_of(stage, slot);
    ++counts[static_cast<std::size_t>(kind.source) * chunks + kind.chunk];
  }
  return counts;
}

} // namespace foretrain
