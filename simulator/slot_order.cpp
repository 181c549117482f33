#include "simulator/slot_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/check.h"
#include "core/program/instructions.h"
#include "simulator/slot_fold.h"

namespace foretrain {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;
/// Of a kind: by what ran before, or by where a transfer goes beside which others.
constexpr std::size_t kVariants = 16;

/// A point on a stage's line: 0 is its start, n the end of its n-th step.
struct Point {
  std::uint32_t stage = kNone; ///< kNone: nowhere
  std::uint32_t done = 0;
};

struct RawStep {
  std::uint32_t kind = 0;
  std::uint32_t slot = kNone; ///< index within the stage; kNone for transfers
  Point after;
  std::uint32_t transfer = kNone; ///< blocking: `after` is where its other end comes to this transfer
  bool sends = false;
  bool to_next = false;    ///< the other end is the next stage
  std::uint32_t batch = 0; ///< of the stage's transfers
};

/// Builds a SlotOrder: lists each stage's steps, then links them, then sorts them.
class Builder {
public:
  Builder(const Schedule& schedule, const ScheduleShape& shape, bool blocking, bool remembers)
      : remembers_(remembers), stages_(static_cast<std::uint32_t>(shape.stages)),
        chunks_(static_cast<std::uint32_t>(shape.chunks)),
        micro_batches_(static_cast<std::uint32_t>(shape.micro_batches)), depths_(stages_ * chunks_) {
    order_.shape = shape;
    order_.split_backward = schedule.splits_backward();
    order_.blocking = blocking;
    kind_index_.assign(std::size_t{11} * kVariants * depths_, kNone);
    list_slots(schedule);
    raw_.resize(stages_);
    if (blocking)
      list_blocking();
    else
      list_free();
    sort();
    list_in_flight();
    make_fold(order_);
  }
  SlotOrder take() { return std::move(order_); }

private:
  std::uint32_t depth(std::uint32_t stage, const ScheduleSlot& slot) const {
    return static_cast<std::uint32_t>(slot.chunk) * stages_ + stage;
  }
  std::size_t pair(std::uint32_t depth, int micro_batch) const {
    return std::size_t{depth} * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }
  static bool returns_gradient(Pass pass) { return pass == Pass::backward || pass == Pass::input; }
  std::uint32_t next(std::uint32_t stage) const { return stage + 1 == stages_ ? 0 : stage + 1; }
  std::uint32_t previous(std::uint32_t stage) const { return stage == 0 ? stages_ - 1 : stage - 1; }

  /// Index of a kind that is `variant` among those of its source, stage and chunk.
  std::uint32_t kind(const StepKind& wanted, std::size_t variant) {
    std::uint32_t& index = kind_index_[(static_cast<std::size_t>(wanted.source) * kVariants + variant) * depths_ +
                                       wanted.chunk * stages_ + wanted.stage];
    if (index == kNone) {
      index = static_cast<std::uint32_t>(order_.kinds.size());
      order_.kinds.push_back(wanted);
    }
    ++order_.kinds[index].count;
    return index;
  }

  void list_slots(const Schedule& schedule) {
    order_.offset.push_back(0);
    for (const auto& slots : schedule.orders(order_.shape)) {
      order_.slots.insert(order_.slots.end(), slots.begin(), slots.end());
      order_.offset.push_back(static_cast<std::uint32_t>(order_.slots.size()));
    }
  }

  /// The kind of slot `s`; `left` counts, per chunk, the forwards and the last passes that are still to come.
  std::uint32_t slot_kind(std::uint32_t stage, std::uint32_t s, std::vector<std::array<std::uint32_t, 2>>& left) {
    const ScheduleSlot& slot = order_.slots[s];
    const Pass before = remembers_ && s > order_.offset[stage] ? order_.slots[s - 1].pass : Pass::step;
    const std::uint32_t chunk = static_cast<std::uint32_t>(slot.chunk);
    const std::uint32_t at = depth(stage, slot);
    if (s == order_.offset[stage]) ended_ = false;
    std::uint32_t& forwards = left[chunk][0];
    std::uint32_t& lasts = left[chunk][1];
    std::int32_t boundary = -1;
    StepSource source = StepSource::forward;
    switch (slot.pass) {
    case Pass::forward:
      source = forwards-- == micro_batches_ ? StepSource::first_forward : StepSource::forward;
      if (at > 0) boundary = static_cast<std::int32_t>(previous(stage));
      break;
    case Pass::backward:
      source = --lasts == 0 ? StepSource::last_backward : StepSource::backward;
      if (at + 1 < depths_) boundary = static_cast<std::int32_t>(stage);
      break;
    case Pass::input:
      source = StepSource::input;
      if (at + 1 < depths_) boundary = static_cast<std::int32_t>(stage);
      break;
    case Pass::weight:
      source = --lasts == 0 ? StepSource::last_weight : StepSource::weight;
      break;
    case Pass::recompute:
    case Pass::step:
      FORETRAIN_CHECK(false, "schedules have forward, backward, input and weight slots");
    }
    if (order_.blocking || stages_ == 1) boundary = -1;
    StepKind wanted;
    wanted.source = source;
    wanted.before = before;
    wanted.stage = stage;
    wanted.chunk = chunk;
    wanted.boundary = boundary;
    wanted.crowded = source == StepSource::last_backward; // its input was sent beside a reduction
    wanted.follows = ended_;
    ended_ = source == StepSource::last_backward || source == StepSource::last_weight;
    return kind(wanted, (before == Pass::step ? kPasses : slot_pass(before)) + (wanted.follows ? kVariants / 2 : 0));
  }

  /// As the instructions of each stage post, wait for and release transfers (core/program/instructions.h).
  void list_in_flight() {
    order_.in_flight.resize(order_.slots.size());
    if (stages_ == 1) return;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      const std::vector<ScheduleSlot> slots(order_.slots.begin() + order_.offset[stage],
                                            order_.slots.begin() + order_.offset[stage + 1]);
      InFlight* const held = order_.in_flight.data() + order_.offset[stage];
      const int here = static_cast<int>(stage);
      const auto receives = [&](std::size_t s) { return needs_receive(slots[s], order_.shape, here) ? 1 : 0; };
      const auto sends = [&](std::size_t s) { return needs_send(slots[s], order_.shape, here) ? 1 : 0; };
      if (order_.blocking) {
        const std::vector<SlotUnit> units = units_of(slots, order_.shape, here);
        for (std::size_t u = 0; u < units.size(); ++u) {
          const SlotUnit& unit = units[u];
          for (std::size_t s = unit.first; s < unit.end; ++s) {
            int beside = 0;
            for (std::size_t t = unit.first; t < s; ++t) beside += sends(t);
            for (std::size_t t = s + 1; t < unit.end; ++t) beside += receives(t);
            held[s].beside = static_cast<std::uint32_t>(beside);
          }
          int after = 0;
          if (u + 1 < units.size())
            for (std::size_t t = units[u + 1].first; t < units[u + 1].end; ++t) after += receives(t);
          held[unit.end - 1].after = static_cast<std::uint32_t>(after);
        }
        continue;
      }
      for (const ReceivePost& post : posts_of(slots, order_.shape, here))
        for (std::size_t s = post.before; s < post.slot; ++s) ++held[s].beside;
      for (std::size_t s = 1; s < slots.size(); ++s) held[s].beside += static_cast<std::uint32_t>(sends(s - 1));
    }
  }

  /// Transfers run beside compute: steps are slots.
  void list_free() {
    std::vector<std::uint32_t> forward_at(std::size_t{depths_} * micro_batches_, kNone);
    std::vector<std::uint32_t> gradient_at = forward_at;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      std::vector<std::array<std::uint32_t, 2>> left(chunks_, {micro_batches_, micro_batches_});
      for (std::uint32_t s = order_.offset[stage]; s < order_.offset[stage + 1]; ++s) {
        const ScheduleSlot& slot = order_.slots[s];
        const std::uint32_t index = s - order_.offset[stage];
        raw_[stage].push_back({slot_kind(stage, s, left), index, {}, kNone, false, false, 0});
        if (slot.pass == Pass::forward) forward_at[pair(depth(stage, slot), slot.micro_batch)] = index;
        if (returns_gradient(slot.pass)) gradient_at[pair(depth(stage, slot), slot.micro_batch)] = index;
      }
    }
    if (stages_ == 1) return;
    for (std::uint32_t stage = 0; stage < stages_; ++stage)
      for (RawStep& step : raw_[stage]) {
        const ScheduleSlot& slot = order_.slots[order_.offset[stage] + step.slot];
        const std::uint32_t at = depth(stage, slot);
        if (slot.pass == Pass::forward && at > 0)
          step.after = {previous(stage), forward_at[pair(at - 1, slot.micro_batch)] + 1};
        if (returns_gradient(slot.pass) && at + 1 < depths_)
          step.after = {next(stage), gradient_at[pair(at + 1, slot.micro_batch)] + 1};
      }
  }

  struct Transfer {
    std::uint32_t id = 0;
    bool sends = false;
    bool to_next = false; ///< the other end is the next stage
  };
  /// Appends what `slot` sends when done, or receives before it starts.
  void list_transfers(std::uint32_t stage, const ScheduleSlot& slot, bool sends,
                      std::vector<Transfer>& transfers) const {
    const std::uint32_t at = depth(stage, slot);
    const std::uint32_t gradients = depths_ * micro_batches_; // ids of gradient transfers come after the others
    const auto id = [&](std::uint32_t from) { return static_cast<std::uint32_t>(pair(from, slot.micro_batch)); };
    if (slot.pass == Pass::forward) {
      if (sends && at + 1 < depths_) transfers.push_back({id(at), true, true});
      if (!sends && at > 0) transfers.push_back({id(at - 1), false, false});
    } else if (returns_gradient(slot.pass)) {
      if (sends && at > 0) transfers.push_back({gradients + id(at), true, false});
      if (!sends && at + 1 < depths_) transfers.push_back({gradients + id(at + 1), false, true});
    }
  }

  /// The stage waits for each transfer of the batch; a transfer begins when both its ends have come to it.
  void add_batch(std::uint32_t stage, const std::vector<Transfer>& batch) {
    if (batch.empty()) return;
    const std::uint32_t done = static_cast<std::uint32_t>(raw_[stage].size());
    const auto sent = static_cast<std::uint32_t>(
        std::count_if(batch.begin(), batch.end(), [](const Transfer& transfer) { return transfer.sends; }));
    ++batches_;
    for (const Transfer& transfer : batch) {
      reached_[transfer.sends][transfer.id] = {stage, done};
      const std::uint32_t ways = transfer.sends ? sent : static_cast<std::uint32_t>(batch.size()) - sent;
      if (ways > 1) crowded_[transfer.id] = true;
      raw_[stage].push_back({kNone, kNone, {}, transfer.id, transfer.sends, transfer.to_next, batches_});
    }
  }

  /// Kinds of transfers, now that both ends are known. The first of a batch lasts as the longest would if all ends were
  /// there: what comes later adds to it.
  void name_transfers(std::uint32_t stage) {
    std::vector<RawStep>& steps = raw_[stage];
    for (std::size_t first = 0; first < steps.size();) {
      if (steps[first].transfer == kNone) {
        ++first;
        continue;
      }
      std::size_t end = first;
      bool next = false;
      bool previous_too = false;
      bool crowded = false;
      for (; end < steps.size() && steps[end].transfer != kNone && steps[end].batch == steps[first].batch; ++end) {
        (steps[end].to_next ? next : previous_too) = true;
        crowded = crowded || crowded_[steps[end].transfer];
      }
      for (std::size_t s = first; s < end; ++s) {
        RawStep& step = steps[s];
        step.after = reached_[!step.sends][step.transfer];
        StepKind wanted;
        wanted.source = s > first      ? StepSource::wait
                        : !next        ? StepSource::transfer_prev
                        : previous_too ? StepSource::transfer_both
                                       : StepSource::transfer_next;
        wanted.stage = stage;
        wanted.boundary = static_cast<std::int32_t>(step.to_next ? stage : previous(stage));
        wanted.crowded = crowded_[step.transfer];
        wanted.crowded_batch = s == first && crowded;
        step.kind =
            kind(wanted, (step.to_next ? 1U : 0U) + (wanted.crowded ? 2U : 0U) + (wanted.crowded_batch ? 4U : 0U));
      }
      first = end;
    }
  }

  void list_blocking() {
    FORETRAIN_CHECK(stages_ > 1 || chunks_ == 1, "one stage has no transfers");
    for (auto& reached : reached_) reached.resize(std::size_t{2} * depths_ * micro_batches_);
    crowded_.resize(reached_[0].size());
    for (std::uint32_t stage = 0; stage < stages_; ++stage) list_blocking_stage(stage);
    for (std::uint32_t stage = 0; stage < stages_; ++stage) name_transfers(stage);
  }

  void list_blocking_stage(std::uint32_t stage) {
    const std::uint32_t begin = order_.offset[stage];
    const std::vector<ScheduleSlot> slots(order_.slots.begin() + begin,
                                          order_.slots.begin() + order_.offset[stage + 1]);
    std::vector<std::array<std::uint32_t, 2>> left(chunks_, {micro_batches_, micro_batches_});
    std::vector<Transfer> sends;
    for (const SlotUnit& unit : units_of(slots, order_.shape, static_cast<int>(stage))) {
      const std::uint32_t first = begin + static_cast<std::uint32_t>(unit.first);
      const std::uint32_t last = begin + static_cast<std::uint32_t>(unit.end);
      std::vector<Transfer> receives;
      for (std::uint32_t s = first; s < last; ++s) list_transfers(stage, order_.slots[s], false, receives);
      const bool together =
          chunks_ > 1 || (!sends.empty() && !receives.empty() && sends.front().to_next == receives.front().to_next);
      if (together) {
        sends.insert(sends.end(), receives.begin(), receives.end());
        add_batch(stage, sends);
      } else {
        add_batch(stage, sends);
        add_batch(stage, receives);
      }
      sends.clear();
      for (std::uint32_t s = first; s < last; ++s) {
        raw_[stage].push_back({slot_kind(stage, s, left), s - order_.offset[stage], {}, kNone, false, false, 0});
        list_transfers(stage, order_.slots[s], true, sends);
      }
    }
    add_batch(stage, sends);
  }

  /// First come, first served over the stages whose next step can run: neighbours in the result are mostly of different
  /// stages, so that a processor replays them side by side.
  void sort() {
    std::size_t total = 0;
    std::vector<std::vector<std::uint32_t>> position(stages_); // of each raw step
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      total += raw_[stage].size();
      position[stage].reserve(raw_[stage].size());
    }
    order_.kind.reserve(total);
    order_.after.reserve(total);
    order_.step_of.resize(order_.slots.size());
    order_.previous_of.resize(order_.slots.size());
    const std::uint32_t first_step = static_cast<std::uint32_t>(order_.first_step());
    const auto end_of = [&](const Point& point) {
      if (point.stage == kNone) return stages_;
      return point.done == 0 ? point.stage : first_step + position[point.stage][point.done - 1];
    };
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> waiting(stages_); // (done, waiting stage)
    std::vector<std::uint32_t> ready;
    ready.reserve(total);
    const auto offer = [&](std::uint32_t stage) {
      const std::size_t next_step = position[stage].size();
      if (next_step == raw_[stage].size()) return;
      const Point& after = raw_[stage][next_step].after;
      if (after.stage == kNone || position[after.stage].size() >= after.done)
        ready.push_back(stage);
      else
        waiting[after.stage].emplace_back(after.done, stage);
    };
    for (std::uint32_t stage = 0; stage < stages_; ++stage) offer(stage);
    for (std::size_t k = 0; k < ready.size(); ++k) {
      const std::uint32_t stage = ready[k];
      const std::uint32_t done = static_cast<std::uint32_t>(position[stage].size());
      const RawStep& step = raw_[stage][done];
      if (step.slot != kNone) {
        order_.step_of[order_.offset[stage] + step.slot] = static_cast<std::uint32_t>(k);
        order_.previous_of[order_.offset[stage] + step.slot] = end_of({stage, done});
      }
      order_.kind.push_back(step.kind);
      order_.after.push_back(end_of(step.after));
      position[stage].push_back(static_cast<std::uint32_t>(k));
      auto& waiters = waiting[stage];
      for (std::size_t w = 0; w < waiters.size();) {
        if (waiters[w].first > position[stage].size()) {
          ++w;
          continue;
        }
        ready.push_back(waiters[w].second);
        waiters[w] = waiters.back();
        waiters.pop_back();
      }
      offer(stage);
    }
    FORETRAIN_CHECK(order_.kind.size() == total, "no stage waits for ever");
  }

  bool remembers_;
  std::uint32_t stages_;
  std::uint32_t chunks_;
  std::uint32_t micro_batches_;
  std::uint32_t depths_;
  SlotOrder order_;
  std::vector<std::uint32_t> kind_index_;
  std::vector<std::vector<RawStep>> raw_; ///< per stage
  std::vector<bool> crowded_;             ///< blocking: transfers that share a port of one of their ends
  std::uint32_t batches_ = 0;
  bool ended_ = false;                        ///< the slot before was the last pass of its chunk
  std::array<std::vector<Point>, 2> reached_; ///< blocking: where the receiver and the sender come to a transfer
};

} // namespace

std::size_t slot_pass(Pass pass) {
  switch (pass) {
  case Pass::forward:
    return 0;
  case Pass::backward:
    return 1;
  case Pass::input:
    return 2;
  case Pass::weight:
    return 3;
  case Pass::recompute:
  case Pass::step:
    break;
  }
  FORETRAIN_CHECK(false, "slots are forward, backward, input or weight");
}

SlotOrder make_slot_order(const Schedule& schedule, const ScheduleShape& shape, bool blocking, bool remembers) {
  FORETRAIN_CHECK(!schedule.legal(shape), "a legal shape");
  FORETRAIN_CHECK(!blocking || !schedule.legal_blocking(shape), "a shape that can run with blocking transfers");
  return Builder(schedule, shape, blocking, remembers).take();
}

} // namespace foretrain
