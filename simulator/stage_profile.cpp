#include "simulator/stage_profile.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/program/memory.h"
#include "simulator/slot_chain.h"

namespace foretrain {
namespace {

bool runs_in(const ChunkOp& op, Turn turn, int micro_batches) {
  switch (op.when) {
  case When::every:
    return true;
  case When::first_micro_batch:
    return turn == Turn::first || micro_batches == 1;
  case When::last_micro_batch:
    return turn == Turn::last || micro_batches == 1;
  }
  return false;
}

int micro_batch_of(Turn turn, int micro_batches) {
  switch (turn) {
  case Turn::first:
    return 0;
  case Turn::middle:
    return std::min(1, micro_batches - 1);
  case Turn::last:
    return micro_batches - 1;
  }
  return 0;
}

/// Profiles one chunk.
class Profiler {
public:
  Profiler(const Program& program, const Role& role, const Chunk& chunk, const BlockTimes& times, const CostModel& cost,
           const HostFloor& host, ChunkProfile& profile, KnownSlots& known)
      : program_(program), role_(role), chunk_(chunk), times_(times), cost_(cost), host_(host), profile_(profile),
        known_(known) {}

  void fill() {
    const Pass last = last_;
    profile_.blocks = static_cast<int>(chunk_.blocks.size());
    for (std::size_t pass = 0; pass < kPasses; ++pass)
      profile_.begins[pass] =
          &(*times_[static_cast<std::size_t>(pass == 0 ? chunk_.blocks.front() : chunk_.blocks.back())])[pass];
    const bool every = std::any_of(chunk_.between.begin(), chunk_.between.end(),
                                   [](const ChunkOp& op) { return op.when == When::every; });
    if (every && program_.stages == 1 && !program_.split_backward) {
      fill_step();
      return;
    }
    fill_forward();
    if (program_.split_backward) {
      fill(Pass::input);
      fill(Pass::weight);
    } else {
      fill(Pass::backward);
    }
    fill_reduction(last);
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
    return std::any_of(chunk_.between.begin(), chunk_.between.end(),
                       [&](const ChunkOp& op) { return op.pass == pass && runs_in(op, turn, program_.micro_batches); });
  }
  [[nodiscard]] SlotChain chain() const { return SlotChain(cost_, program_.mesh, host_); }
  void add(SlotChain& chain, Pass pass, Turn turn, bool prefetched = false) const {
    chain.add(chunk_, pass, times_, between(pass, turn), prefetched);
  }

  /// Blocks one after the other, nothing between them; equal ones follow each other.
  [[nodiscard]] SlotTimeOf blocks_alone(Pass pass) const {
    SlotTimeOf result;
    const std::size_t count = chunk_.blocks.size();
    for (std::size_t first = 0, end = 0; first < count; first = end) {
      while (end < count && chunk_.blocks[end] == chunk_.blocks[first]) ++end;
      const BlockTime& time = (*times_[static_cast<std::size_t>(chunk_.blocks[first])])[slot_pass(pass)];
      const auto times = static_cast<double>(end - first);
      result.seconds += time.seconds * times;
      result.compute += time.compute * times;
      for (std::size_t p = 0; p < result.parts.size(); ++p) result.parts[p] += time.parts[p] * times;
    }
    return result;
  }

  /// One slot, alone on its rank.
  [[nodiscard]] SlotTimeOf alone(Pass pass, Turn turn) {
    SlotTimeOf result;
    if (!has_between(pass, turn)) {
      result = blocks_alone(pass);
    } else if (const std::vector<const ChunkOp*> ops = between(pass, turn); all_at_end(ops)) {
      result = blocks_alone(pass);
      for (const ChunkOp* op : ops) {
        const Load load = load_of(op->op, program_.mesh, cost_);
        if (load.duration() > 0) profile_.evidence = std::max(profile_.evidence, load.evidence);
        result.outstanding += load.duration();
      }
    } else if (turn == Turn::last && pass == last_ && known_.has_last && known_.use_last) {
      result = blocks_alone(pass);
      result.seconds += known_.last_delay;
      result.parts[static_cast<std::size_t>(TimePart::dp)] += Seconds(known_.last_delay);
      result.outstanding = known_.last_outstanding;
      profile_.evidence = std::max(profile_.evidence, known_.last_evidence);
    } else {
      SlotChain run = chain();
      add(run, pass, turn);
      const ChainSlot slot = run.run().front();
      profile_.evidence = std::max(profile_.evidence, run.evidence());
      result = {slot.seconds, slot.outstanding, slot.compute, slot.parts, {}};
      if (turn == Turn::last && pass == last_ && known_.use_last) {
        known_.has_last = true;
        known_.last_delay = std::max(0.0, slot.seconds - blocks_alone(pass).seconds);
        known_.last_outstanding = slot.outstanding;
        known_.last_evidence = run.evidence();
      }
    }
    result.memory = memory_of(pass, turn);
    return result;
  }

  /// Reductions behind the last block: nothing runs beside them.
  static bool all_at_end(const std::vector<const ChunkOp*>& ops) {
    return std::all_of(ops.begin(), ops.end(), [](const ChunkOp* op) {
      return op->position == 0 && !op->before && op->pass != Pass::forward && op->op.kind == OpKind::collective &&
             op->op.stream == Stream::gradients && op->needed_at < 0 && op->waits_for < 0;
    });
  }

  [[nodiscard]] Block::Memory memory_of(Pass pass, Turn turn) const {
    Instruction slot;
    slot.pass = pass;
    slot.chunk = chunk_.index;
    slot.micro_batch = micro_batch_of(turn, program_.micro_batches);
    return slot_memory(program_, role_, slot);
  }

  /// Other collectives run in it than in a slot in the middle.
  [[nodiscard]] bool differs(Pass pass, Turn turn) const {
    return std::any_of(chunk_.between.begin(), chunk_.between.end(), [&](const ChunkOp& op) {
      return op.pass == pass &&
             runs_in(op, turn, program_.micro_batches) != runs_in(op, Turn::middle, program_.micro_batches);
    });
  }

  void fill(Pass pass) {
    std::array<SlotTimeOf, 3>& into = profile_.turns(pass);
    const SlotTimeOf& middle = into[static_cast<std::size_t>(Turn::middle)] = alone(pass, Turn::middle);
    for (const Turn turn : {Turn::first, Turn::last})
      into[static_cast<std::size_t>(turn)] = differs(pass, turn) ? alone(pass, turn) : middle;
  }

  /// Forwards and backwards in turn, as one stage runs them that has no other: what all forwards took, what all
  /// backwards did, and by how much transfers outlast them.
  struct WholeStep {
    std::array<ChainSlot, 2> passes;
    double outstanding = 0;
  };
  [[nodiscard]] WholeStep whole_step(int micro_batches) {
    SlotChain run = chain();
    for (int j = 0; j < micro_batches; ++j)
      for (const Pass pass : {Pass::forward, Pass::backward})
        add(run, pass, j == 0 ? Turn::first : j + 1 == micro_batches ? Turn::last : Turn::middle);
    const std::vector<ChainSlot> slots = run.run();
    profile_.evidence = std::max(profile_.evidence, run.evidence());
    WholeStep step;
    for (std::size_t i = 0; i < slots.size(); ++i) add_times(step.passes[i % 2], slots[i], 1);
    step.outstanding = slots.back().outstanding;
    return step;
  }
  static void add_times(ChainSlot& to, const ChainSlot& slot, double times) {
    to.seconds += slot.seconds * times;
    to.compute += slot.compute * times;
    for (std::size_t p = 0; p < to.parts.size(); ++p) to.parts[p] += slot.parts[p] * times;
  }

  /// One stage alone: two short steps, one micro-batch apart, say what each micro-batch more takes. What does not grow
  /// stands in the first forward and the last backward.
  void fill_step() {
    constexpr int kMost = 3;
    const int m = program_.micro_batches;
    const int count = std::min(m, kMost);
    const WholeStep longer = whole_step(count);
    const WholeStep shorter = m > count ? whole_step(count - 1) : WholeStep{};
    std::array<ChainSlot, 2> middles;
    for (std::size_t index = 0; index < middles.size(); ++index) {
      if (m > count) add_times(middles[index], shorter.passes[index], -1);
      add_times(middles[index], longer.passes[index], m > count ? 1 : 1.0 / count);
    }
    // A micro-batch more takes its blocks at least, however little of a short step its collectives put off.
    const double least = blocks_alone(Pass::forward).seconds + blocks_alone(Pass::backward).seconds;
    if (const double missing = least - middles[0].seconds - middles[1].seconds; m > count && missing > 0) {
      middles[1].seconds += missing;
      middles[1].parts[static_cast<std::size_t>(TimePart::dp)] += Seconds(missing);
    }
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const std::size_t index = pass == Pass::forward ? 0 : 1;
      const Turn at_edge = pass == Pass::forward ? Turn::first : Turn::last;
      const ChainSlot& middle = middles[index];
      ChainSlot edge = longer.passes[index];
      add_times(edge, middle, 1 - count);
      for (const Turn turn : {Turn::first, Turn::middle, Turn::last}) {
        const ChainSlot& slot = turn == at_edge ? edge : middle;
        profile_.turns(pass)[static_cast<std::size_t>(turn)] = {slot.seconds, 0, slot.compute, slot.parts,
                                                                memory_of(pass, turn)};
      }
    }
    const double growth = m > count ? longer.outstanding - shorter.outstanding : 0;
    profile_.backward[static_cast<std::size_t>(Turn::last)].outstanding =
        std::max(0.0, longer.outstanding + growth * (m - count));
  }

  void fill_reduction(Pass last) {
    const double outstanding = profile_.at(last, Turn::last).outstanding;
    if (outstanding <= 0) return;
    const std::vector<const ChunkOp*> ops = between(last, Turn::last);
    for (const ChunkOp* op : ops)
      if (op->op.kind == OpKind::collective && op->position == 0)
        profile_.reduction = load_of(op->op, program_.mesh, cost_);
    profile_.reduction.latency = 0;
    profile_.reduction.seconds = outstanding;
  }

  /// Forwards, the first one as it was under another recomputation where its blocks take as long.
  void fill_forward() {
    const auto first = static_cast<std::size_t>(Turn::first);
    SlotTimeOf& middle = profile_.forward[static_cast<std::size_t>(Turn::middle)] = alone(Pass::forward, Turn::middle);
    profile_.forward.fill(middle);
    if (differs(Pass::forward, Turn::last))
      profile_.forward[static_cast<std::size_t>(Turn::last)] = alone(Pass::forward, Turn::last);
    if (!has_between(Pass::forward, Turn::first)) return;
    std::vector<std::pair<double, int>> blocks;
    for (const int block : chunk_.blocks) {
      const double seconds = (*times_[static_cast<std::size_t>(block)])[slot_pass(Pass::forward)].seconds;
      if (blocks.empty() || blocks.back().first != seconds) blocks.emplace_back(seconds, 0);
      ++blocks.back().second;
    }
    if (blocks != known_.blocks) {
      known_.blocks = std::move(blocks);
      time_first();
    }
    const Block::Memory memory =
        differs(Pass::forward, Turn::first) ? memory_of(Pass::forward, Turn::first) : middle.memory;
    profile_.forward[first] = known_.slot;
    profile_.forward[first].memory = memory;
    profile_.ahead = known_.ahead;
    profile_.evidence = std::max(profile_.evidence, known_.evidence);
  }

  /// Gathers that wait for no block run from the start of the step, while a later stage still waits for its input.
  void time_first() {
    const std::vector<const ChunkOp*> ops = between(Pass::forward, Turn::first);
    const auto timed = [&](bool prefetched) {
      SlotChain run = chain();
      run.add(chunk_, Pass::forward, times_, ops, prefetched);
      const ChainSlot slot = run.run().front();
      known_.evidence = std::max(known_.evidence, run.evidence());
      return SlotTimeOf{slot.seconds, slot.outstanding, slot.compute, slot.parts, {}};
    };
    known_.evidence = Evidence::measured;
    const SlotTimeOf whole = timed(false);
    const bool all_ahead = std::all_of(ops.begin(), ops.end(), [](const ChunkOp* op) {
      return op->before && op->waits_for < 0 && op->op.kind == OpKind::collective;
    });
    known_.slot = all_ahead ? blocks_alone(Pass::forward) : timed(true);
    known_.ahead = std::max(0.0, whole.seconds - known_.slot.seconds);
  }

  /// Slots one after the other, as a schedule has them at its start, once it is warm, and at its end.
  void fill_after(Pass last) {
    using enum Pass;
    static const std::vector<Pass> whole = {forward, forward, backward, forward, backward, forward, backward, backward};
    static const std::vector<Pass> split = {forward, forward, input, forward, input, weight, forward, input,
                                            weight,  forward, input, weight,  input, weight, weight};
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
    std::array<SlotTimeOf, 3>& turns = profile_.turns(pass);
    const double alone = turns[static_cast<std::size_t>(Turn::middle)].seconds;
    for (SlotTimeOf& turn : turns) {
      if (turn.seconds != alone) continue;
      turn = {slot.seconds, slot.outstanding, slot.compute, slot.parts, turn.memory};
    }
  }

  const Program& program_;
  const Role& role_;
  const Chunk& chunk_;
  const BlockTimes& times_;
  const CostModel& cost_;
  const HostFloor& host_;
  ChunkProfile& profile_;
  KnownSlots& known_;
  Pass last_ = program_.split_backward ? Pass::weight : Pass::backward; ///< ends a micro-batch
};

} // namespace

const SlotTimeOf& ChunkProfile::at(Pass pass, Turn turn) const {
  const std::array<const std::array<SlotTimeOf, 3>*, kPasses> all = {&forward, &backward, &input, &weight};
  return (*all[slot_pass(pass)])[static_cast<std::size_t>(turn)];
}

std::array<SlotTimeOf, 3>& ChunkProfile::turns(Pass pass) {
  const std::array<std::array<SlotTimeOf, 3>*, kPasses> all = {&forward, &backward, &input, &weight};
  return *all[slot_pass(pass)];
}

void fill_chunk_profile(const Program& program, const Role& role, const Chunk& chunk, const BlockTimes& times,
                        const CostModel& cost, const HostFloor& host, ChunkProfile& profile, KnownSlots& known) {
  Profiler(program, role, chunk, times, cost, host, profile, known).fill();
}

} // namespace foretrain
