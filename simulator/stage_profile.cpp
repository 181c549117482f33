#include "simulator/stage_profile.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "core/base/check.h"
#include "core/program/memory.h"

namespace foretrain {
namespace {

constexpr double kEpsilon = 1e-15;

std::size_t pass_index(Pass pass) {
  switch (pass) {
  case Pass::forward: return 0;
  case Pass::backward: return 1;
  case Pass::input: return 2;
  case Pass::weight: return 3;
  case Pass::recompute:
  case Pass::step: break;
  }
  FORETRAIN_CHECK(false, "slots are forward, backward, input or weight");
}

/// A block or a collective between blocks, as a unit of work.
struct Unit {
  double left = 0;
  const TimeParts* parts = nullptr; ///< of a block
  double whole = 0;
  double floor = 0;   ///< least time of a block from its start; 0: its kernels take longer
  double started = 0;
  bool padding = false; ///< its kernels are done, the host is not: nothing runs
  const Op* op = nullptr;           ///< of a collective
  int position = -1;                ///< block position; collectives: the place they are tied to
  int needed_at = -1;
  int starts_with = -1; ///< only once the block at this position has begun
  int starts_after = -1; ///< only once the block at this position is done
  Cost cost;
};

/// One slot on a rank of its own: compute, gradients and parameters streams.
class SlotRun {
public:
  SlotRun(const CostModel& cost, const Mesh& mesh) : cost_(cost), mesh_(mesh) {}

  void add_block(int position, const BlockTime& time) {
    Unit unit;
    unit.whole = time.seconds;
    unit.left = time.seconds - time.pad;
    unit.floor = time.pad > 0 ? time.seconds : 0;
    unit.parts = &time.parts;
    unit.position = position;
    queues_[0].push_back(unit);
  }
  void add_between(const ChunkOp& between, Cost cost) {
    Unit unit;
    unit.left = unit.whole = cost.seconds;
    unit.op = &between.op;
    unit.position = between.position;
    unit.needed_at = between.needed_at;
    unit.starts_with = between.waits_for;
    unit.starts_after = between.before ? -1 : between.position;
    const bool compute = between.op.stream == Stream::compute;
    queues_[compute ? 0 : between.op.stream == Stream::gradients ? 1 : 2].push_back(unit);
  }

  SlotTimeOf run(int blocks) {
    begun_.assign(static_cast<std::size_t>(blocks), false);
    done_.assign(static_cast<std::size_t>(blocks), false);
    SlotTimeOf result;
    while (true) {
      start_ready();
      double step = std::numeric_limits<double>::infinity();
      const std::array<double, 3> rates = current_rates();
      for (std::size_t q = 0; q < 3; ++q)
        if (running_[q]) step = std::min(step, queues_[q].front().left / rates[q]);
      if (step == std::numeric_limits<double>::infinity()) break;
      now_ += step;
      book(result, step);
      for (std::size_t q = 0; q < 3; ++q) {
        if (!running_[q]) continue;
        queues_[q].front().left -= step * rates[q];
        if (queues_[q].front().left <= kEpsilon) finish(q);
      }
      if (queues_[0].empty() && result.seconds == 0) result.seconds = now_;
    }
    FORETRAIN_CHECK(queues_[0].empty() && queues_[1].empty() && queues_[2].empty(), "every unit of a slot runs");
    result.outstanding = std::max(0.0, now_ - result.seconds);
    return result;
  }

private:
  void start_ready() {
    for (bool again = true; again;) {
      again = false;
      for (std::size_t q = 0; q < 3; ++q) {
        if (running_[q] || queues_[q].empty() || !ready(q)) continue;
        running_[q] = true;
        Unit& unit = queues_[q].front();
        unit.started = now_;
        if (unit.parts) begun_[static_cast<std::size_t>(unit.position)] = true;
        again = true;
        if (unit.left <= kEpsilon) finish(q);
      }
    }
  }
  [[nodiscard]] bool ready(std::size_t q) const {
    const Unit& unit = queues_[q].front();
    if (unit.starts_with >= 0 && !begun_[static_cast<std::size_t>(unit.starts_with)]) return false;
    if (q != 0) return unit.starts_after < 0 || done_[static_cast<std::size_t>(unit.starts_after)];
    // Compute waits for gathers that its block needs; a copy between blocks belongs to the block after it.
    for (std::size_t other = 1; other < 3; ++other)
      for (const Unit& waiting : queues_[other])
        if (waiting.needed_at >= 0 && waiting.needed_at == unit.position) return false;
    return true;
  }
  /// Its work is done: it ends, or waits for the host.
  void finish(std::size_t q) {
    Unit& unit = queues_[q].front();
    const double rest = unit.started + unit.floor - now_;
    if (rest > kEpsilon) {
      unit.padding = true;
      unit.left = rest;
      return;
    }
    if (unit.parts) done_[static_cast<std::size_t>(unit.position)] = true;
    queues_[q].pop_front();
    running_[q] = false;
  }
  [[nodiscard]] std::array<double, 3> current_rates() const {
    std::array<double, 3> rates = {1, 1, 1};
    if (running_[0] && queues_[0].front().padding) return rates;
    for (std::size_t q = 1; q < 3; ++q)
      if (running_[q]) rates[0] = std::min(rates[0], cost_.interference(mesh_.shape(queues_[q].front().op->group)));
    if (running_[0]) rates[1] = rates[2] = cost_.transfer_rate();
    return rates;
  }
  void book(SlotTimeOf& result, double step) const {
    if (queues_[0].empty()) return; // what outlasts compute is not part of the slot
    if (!running_[0] || !queues_[0].front().parts) {
      result.parts[static_cast<std::size_t>(TimePart::dp)] += Seconds(step);
      return;
    }
    const Unit& unit = queues_[0].front();
    for (std::size_t p = 0; p < result.parts.size(); ++p)
      result.parts[p] += Seconds(unit.whole > 0 ? step * (*unit.parts)[p].value / unit.whole : 0);
  }

  const CostModel& cost_;
  const Mesh& mesh_;
  double now_ = 0;
  std::array<std::deque<Unit>, 3> queues_; ///< compute, gradients, parameters
  std::array<bool, 3> running_{};
  std::vector<bool> begun_;
  std::vector<bool> done_;
};

bool runs_in(const ChunkOp& op, Turn turn, int micro_batches) {
  switch (op.when) {
  case When::every: return true;
  case When::first_micro_batch: return turn == Turn::first || micro_batches == 1;
  case When::last_micro_batch: return turn == Turn::last || micro_batches == 1;
  }
  return false;
}

int micro_batch_of(Turn turn, int micro_batches) {
  switch (turn) {
  case Turn::first: return 0;
  case Turn::middle: return std::min(1, micro_batches - 1);
  case Turn::last: return micro_batches - 1;
  }
  return 0;
}

SlotTimeOf profile_slot(const Program& program, const Role& role, const Chunk& chunk, Pass pass, Turn turn,
                        const BlockTimes& times, const CostModel& cost, const HostFloor& host, Evidence& evidence) {
  SlotTimeOf result;
  const int count = static_cast<int>(chunk.blocks.size());
  const auto time_at = [&](int position) -> const BlockTime& {
    return times[static_cast<std::size_t>(chunk.blocks[static_cast<std::size_t>(position)])][pass_index(pass)];
  };
  std::vector<const ChunkOp*> between;
  for (const ChunkOp& op : chunk.between)
    if (op.pass == pass && runs_in(op, turn, program.micro_batches)) between.push_back(&op);
  if (between.empty()) {
    for (int position = 0; position < count; ++position) {
      const BlockTime& time = time_at(position);
      result.seconds += time.seconds;
      for (std::size_t p = 0; p < result.parts.size(); ++p) result.parts[p] += time.parts[p];
    }
  } else {
    SlotRun run(cost, program.mesh);
    // Chained by place, in order: one walk instead of a search at every block.
    constexpr int kNone = -1;
    std::vector<int> heads(static_cast<std::size_t>(count) * 2, kNone);
    std::vector<int> next(between.size(), kNone);
    for (std::size_t i = between.size(); i-- > 0;) {
      int& head = heads[static_cast<std::size_t>(between[i]->position) * 2 + (between[i]->before ? 0 : 1)];
      next[i] = head;
      head = static_cast<int>(i);
    }
    const auto issue = [&](int position, bool before) {
      for (int i = heads[static_cast<std::size_t>(position) * 2 + (before ? 0 : 1)]; i != kNone; i = next[static_cast<std::size_t>(i)]) {
        const ChunkOp& op = *between[static_cast<std::size_t>(i)];
        const Cost duration = op_cost(op.op, program.mesh, cost, host);
        evidence = std::max(evidence, duration.evidence);
        run.add_between(op, duration);
      }
    };
    for (int step = 0; step < count; ++step) {
      const int position = pass == Pass::forward ? step : count - 1 - step;
      issue(position, true);
      run.add_block(position, time_at(position));
      issue(position, false);
    }
    result = run.run(count);
  }
  Instruction slot;
  slot.pass = pass;
  slot.chunk = chunk.index;
  slot.micro_batch = micro_batch_of(turn, program.micro_batches);
  result.memory = slot_memory(program, role, slot);
  return result;
}

} // namespace

const SlotTimeOf& ChunkProfile::at(Pass pass, Turn turn) const {
  const std::array<const std::array<SlotTimeOf, 3>*, 4> all = {&forward, &backward, &input, &weight};
  return (*all[pass_index(pass)])[static_cast<std::size_t>(turn)];
}

void fill_chunk_profile(const Program& program, const Role& role, const Chunk& chunk, const BlockTimes& times,
                        const CostModel& cost, const HostFloor& host, ChunkProfile& profile) {
  const auto fill = [&](std::array<SlotTimeOf, 3>& into, Pass pass) {
    const auto middle = static_cast<std::size_t>(Turn::middle);
    into[middle] = profile_slot(program, role, chunk, pass, Turn::middle, times, cost, host, profile.evidence);
    for (const Turn turn : {Turn::first, Turn::last}) {
      const bool differs = std::any_of(chunk.between.begin(), chunk.between.end(), [&](const ChunkOp& op) {
        return op.pass == pass && runs_in(op, turn, program.micro_batches) != runs_in(op, Turn::middle, program.micro_batches);
      });
      into[static_cast<std::size_t>(turn)] =
          differs ? profile_slot(program, role, chunk, pass, turn, times, cost, host, profile.evidence) : into[middle];
    }
  };
  fill(profile.forward, Pass::forward);
  if (program.split_backward) {
    fill(profile.input, Pass::input);
    fill(profile.weight, Pass::weight);
  } else {
    fill(profile.backward, Pass::backward);
  }
}

} // namespace foretrain
