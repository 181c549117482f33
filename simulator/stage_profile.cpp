#include "simulator/stage_profile.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/program/memory.h"
#include "simulator/slot_chain.h"

namespace foretrain {
namespace {

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

/// Profiles one chunk.
class Profiler {
public:
  Profiler(const Program& program, const Role& role, const Chunk& chunk, const BlockTimes& times, const CostModel& cost,
           const HostFloor& host, ChunkProfile& profile)
      : program_(program), role_(role), chunk_(chunk), cost_(cost), host_(host), profile_(profile) {
    for (std::size_t pass = 0; pass < kPasses; ++pass)
      for (const int block : chunk.blocks) times_[pass].push_back(&times[static_cast<std::size_t>(block)][pass]);
  }

  void fill() {
    const Pass last = program_.split_backward ? Pass::weight : Pass::backward;
    if (program_.split_backward) {
      fill(profile_.forward, Pass::forward);
      fill(profile_.input, Pass::input);
      fill(profile_.weight, Pass::weight);
    } else {
      fill(profile_.forward, Pass::forward);
      fill(profile_.backward, Pass::backward);
    }
    if (has_between(Pass::forward, Turn::first)) fill_first();
    fill_reduction(last);
    bool every = false;
    for (const ChunkOp& op : chunk_.between) every = every || runs_in(op, Turn::middle, program_.micro_batches);
    if (every) fill_after(last);
  }

private:
  [[nodiscard]] std::vector<const ChunkOp*> between(Pass pass, Turn turn) const {
    std::vector<const ChunkOp*> ops;
    for (const ChunkOp& op : chunk_.between)
      if (op.pass == pass && runs_in(op, turn, program_.micro_batches)) ops.push_back(&op);
    return ops;
  }
  [[nodiscard]] bool has_between(Pass pass, Turn turn) const {
    return std::any_of(chunk_.between.begin(), chunk_.between.end(), [&](const ChunkOp& op) {
      return op.pass == pass && runs_in(op, turn, program_.micro_batches);
    });
  }
  [[nodiscard]] SlotChain chain() const { return SlotChain(cost_, program_.mesh, host_); }
  void add(SlotChain& chain, Pass pass, Turn turn, bool prefetched = false) const {
    chain.add(chunk_, pass, times_[slot_pass(pass)], between(pass, turn), prefetched);
  }

  /// One slot, alone on its rank.
  [[nodiscard]] SlotTimeOf alone(Pass pass, Turn turn) {
    SlotTimeOf result;
    if (!has_between(pass, turn)) {
      for (const BlockTime* time : times_[slot_pass(pass)]) {
        result.seconds += time->seconds;
        result.compute += time->compute;
        for (std::size_t p = 0; p < result.parts.size(); ++p) result.parts[p] += time->parts[p];
      }
    } else {
      SlotChain run = chain();
      add(run, pass, turn);
      const ChainSlot slot = run.run().front();
      profile_.evidence = std::max(profile_.evidence, run.evidence());
      result = {slot.seconds, slot.outstanding, slot.compute, slot.parts, {}};
    }
    Instruction slot;
    slot.pass = pass;
    slot.chunk = chunk_.index;
    slot.micro_batch = micro_batch_of(turn, program_.micro_batches);
    result.memory = slot_memory(program_, role_, slot);
    return result;
  }

  void fill(std::array<SlotTimeOf, 3>& into, Pass pass) {
    const auto middle = static_cast<std::size_t>(Turn::middle);
    into[middle] = alone(pass, Turn::middle);
    for (const Turn turn : {Turn::first, Turn::last}) {
      const bool differs = std::any_of(chunk_.between.begin(), chunk_.between.end(), [&](const ChunkOp& op) {
        return op.pass == pass &&
               runs_in(op, turn, program_.micro_batches) != runs_in(op, Turn::middle, program_.micro_batches);
      });
      into[static_cast<std::size_t>(turn)] = differs ? alone(pass, turn) : into[middle];
    }
  }

  void fill_reduction(Pass last) {
    const double outstanding = profile_.at(last, Turn::last).outstanding;
    if (outstanding <= 0) return;
    const std::vector<const ChunkOp*> ops = between(last, Turn::last);
    for (const ChunkOp* op : ops)
      if (op->op.kind == OpKind::collective && op->position == 0) profile_.reduction = load_of(op->op, program_.mesh, cost_);
    profile_.reduction.latency = 0;
    profile_.reduction.seconds = outstanding;
  }

  /// Gathers that wait for no block run from the start of the step, while a later stage still waits for its input.
  void fill_first() {
    const std::vector<const ChunkOp*> ops = between(Pass::forward, Turn::first);
    ChainSlot slot;
    if (std::all_of(ops.begin(), ops.end(), [](const ChunkOp* op) {
          return op->before && op->waits_for < 0 && op->op.kind == OpKind::collective;
        })) {
      for (const BlockTime* time : times_[slot_pass(Pass::forward)]) {
        slot.seconds += time->seconds;
        for (std::size_t p = 0; p < slot.parts.size(); ++p) slot.parts[p] += time->parts[p];
      }
    } else {
      SlotChain run = chain();
      add(run, Pass::forward, Turn::first, true);
      slot = run.run().front();
    }
    SlotTimeOf& first = profile_.forward[static_cast<std::size_t>(Turn::first)];
    profile_.ahead = std::max(0.0, first.seconds - slot.seconds);
    first.seconds = slot.seconds;
    first.parts = slot.parts;
  }

  /// Slots one after the other, as a schedule has them at its start, once it is warm, and at its end.
  void fill_after(Pass last) {
    using enum Pass;
    static const std::vector<Pass> whole = {forward, forward, backward, forward, backward, forward, backward, backward};
    static const std::vector<Pass> split = {forward, forward, input,  forward, input,  weight, forward, input,
                                            weight,  forward, input,  weight,  input,  weight, weight};
    const std::vector<Pass>& passes = program_.split_backward ? split : whole;
    SlotChain run = chain();
    for (std::size_t i = 0; i < passes.size(); ++i) add(run, passes[i], Turn::middle);
    const std::vector<ChainSlot> slots = run.run();
    profile_.evidence = std::max(profile_.evidence, run.evidence());
    profile_.chained = true;
    for (std::size_t pass = 0; pass < kPasses; ++pass)
      for (double& seconds : profile_.after[pass]) seconds = -1;
    std::vector<double> behind; // after each pass that reduces
    for (std::size_t i = 1; i < passes.size(); ++i) {
      profile_.after[slot_pass(passes[i])][slot_pass(passes[i - 1])] = slots[i].seconds;
      if (passes[i] == last) behind.push_back(slots[i].outstanding);
    }
    profile_.backlog = std::max(0.0, behind[2] - behind[1]);
    // What stands for a slot where its neighbours are not asked for: the warm schedule.
    const std::size_t warm = passes.size() - (program_.split_backward ? 6 : 3);
    std::array<double, kPasses> typical{};
    for (std::size_t i = warm; i < warm + (program_.split_backward ? 3U : 2U); ++i) {
      typical[slot_pass(passes[i])] = slots[i].seconds;
      settle(passes[i], slots[i]);
    }
    for (std::size_t pass = 0; pass < kPasses; ++pass)
      for (double& seconds : profile_.after[pass])
        if (seconds < 0) seconds = typical[pass];
  }

  /// The slot in the middle of a chain replaces the one that was timed alone; the first and the last, where they are no
  /// other.
  void settle(Pass pass, const ChainSlot& slot) {
    const std::array<std::array<SlotTimeOf, 3>*, kPasses> all = {&profile_.forward, &profile_.backward, &profile_.input,
                                                                 &profile_.weight};
    std::array<SlotTimeOf, 3>& turns = *all[slot_pass(pass)];
    const double alone = turns[static_cast<std::size_t>(Turn::middle)].seconds;
    for (SlotTimeOf& turn : turns) {
      if (turn.seconds != alone) continue;
      turn = {slot.seconds, slot.outstanding, slot.compute, slot.parts, turn.memory};
    }
  }

  const Program& program_;
  const Role& role_;
  const Chunk& chunk_;
  const CostModel& cost_;
  const HostFloor& host_;
  ChunkProfile& profile_;
  std::array<std::vector<const BlockTime*>, kPasses> times_;
};

} // namespace

const SlotTimeOf& ChunkProfile::at(Pass pass, Turn turn) const {
  const std::array<const std::array<SlotTimeOf, 3>*, kPasses> all = {&forward, &backward, &input, &weight};
  return (*all[slot_pass(pass)])[static_cast<std::size_t>(turn)];
}

void fill_chunk_profile(const Program& program, const Role& role, const Chunk& chunk, const BlockTimes& times,
                        const CostModel& cost, const HostFloor& host, ChunkProfile& profile) {
  Profiler(program, role, chunk, times, cost, host, profile).fill();
}

} // namespace foretrain
