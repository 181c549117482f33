#include "simulator/script_slot.h"

#include <algorithm>

#include "core/base/check.h"

namespace foretrain {
namespace {

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

/// Who wrote a buffer last: `count` steps of `lane` done means that it is there.
struct Writer {
  Lane lane = Lane::compute;
  int count = -1; ///< -1: nobody in this slot
};

class SlotBuilder {
public:
  SlotBuilder(const Program& program, const Role& role, const Instruction& instruction, ScriptOptions options,
              ScriptCosts& costs)
      : program_(program), instruction_(instruction), options_(options), costs_(costs),
        chunk_(role.chunks[index(instruction.chunk)]) {}

  ScriptSlot build() {
    ScriptStep gate;
    gate.kind = ScriptStepKind::gate;
    gate.entry = true;
    push(std::move(gate));
    const int count = static_cast<int>(chunk_.blocks.size());
    begins_.assign(index(count), 0);
    waits_.assign(index(count), 0);
    for (int i = 0; i < count; ++i) {
      const int position = instruction_.pass == Pass::forward ? i : count - 1 - i;
      waits_[index(position)] = done(Lane::compute); // copies out of what is gathered wait for it too
      between(position, true);
      block(position);
      between(position, false);
      // Memory of collectives between blocks that is given back once this block has run.
      for (const ChunkOp& op : chunk_.between)
        if (op.freed_after == position && runs_now(op)) slot_.steps.back().net -= op.frees.value;
    }
    resolve();
    return std::move(slot_);
  }

private:
  int done(Lane lane) const { return static_cast<int>(slot_.by_lane[at(lane)].size()); }

  int push(ScriptStep step) {
    const int number = static_cast<int>(slot_.steps.size());
    slot_.by_lane[at(step.lane)].push_back(number);
    slot_.steps.push_back(std::move(step));
    return number;
  }

  static std::int64_t bytes_of(const Block& block, const std::vector<int>& buffers) {
    std::int64_t total = 0;
    for (const int buffer : buffers) total += block.buffers[index(buffer)].bytes.value;
    return total;
  }

  ScriptStep step_of(const Op& op, int position, int layer) {
    ScriptStep step;
    costs_.fill(step, op);
    step.position = position;
    step.layer = layer;
    return step;
  }

  /// Memory of the step after `net` and `peak` of one more op.
  static void add_memory(ScriptStep& step, std::int64_t allocated, std::int64_t scratch, std::int64_t freed) {
    step.net += allocated;
    step.peak = std::max(step.peak, step.net + scratch);
    step.net -= freed;
  }

  void block(int position) {
    const Block& block = program_.blocks[index(chunk_.blocks[index(position)])];
    const std::vector<Op>& ops = block.ops(instruction_.pass);
    const int begin = begins_[index(position)] = done(Lane::compute);
    const double floor = floor_of(block, ops);
    if (floor > 0) {
      ScriptStep gate;
      gate.kind = ScriptStepKind::gate;
      gate.begins = true;
      push(std::move(gate));
    }
    may_fuse_ = options_.fuse && chunk_.between.empty();
    const std::vector<bool> shared = read_elsewhere(block, ops);
    std::vector<Writer> writers(block.buffers.size());
    for (std::size_t i = 0; i < block.buffers.size(); ++i) {
      const BufferScope scope = block.buffers[i].scope;
      if (scope == BufferScope::input && instruction_.pass == Pass::forward) writers[i] = carried_;
      if (scope == BufferScope::grad_output && instruction_.pass != Pass::forward) writers[i] = carried_;
    }
    for (const Op& op : ops) {
      ScriptStep step = step_of(op, position, chunk_.layers[index(position)]);
      if (step.lane != Lane::compute) step.after = begin; // not before its block
      for (const int buffer : op.reads) {
        const Writer& writer = writers[index(buffer)];
        if (writer.count > 0 && writer.lane != step.lane) wait_for(step, {writer.lane, writer.count});
      }
      add_memory(step, bytes_of(block, op.allocates), op.scratch.value, bytes_of(block, op.frees));
      if (!fuse(step)) push(std::move(step));
      const Lane lane = lane_of(op.stream);
      for (const int buffer : op.writes) writers[index(buffer)] = {lane, done(lane)};
      may_fuse_ = options_.fuse &&
                  std::none_of(op.writes.begin(), op.writes.end(), [&](int buffer) { return shared[index(buffer)]; });
    }
    if (floor > 0) {
      ScriptStep pad;
      pad.kind = ScriptStepKind::pad;
      pad.part = TimePart::host;
      pad.seconds = floor;
      push(std::move(pad));
    }
    carried_ = {};
    const BufferScope out = instruction_.pass == Pass::forward ? BufferScope::output : BufferScope::grad_input;
    for (std::size_t i = 0; i < block.buffers.size(); ++i)
      if (block.buffers[i].scope == out && writers[i].count > 0) carried_ = writers[i];
  }

  /// A layer cannot finish before the host has launched it: once per pass, a whole backward counts as two and a
  /// recomputation as one more (as in block_time).
  [[nodiscard]] double floor_of(const Block& block, const std::vector<Op>& ops) const {
    if (costs_.layer_floor() <= 0 || (block.kind != BlockKind::layer && block.kind != BlockKind::mtp)) return 0;
    double passes = 0;
    for (const Op& op : ops)
      passes = std::max(passes, op.pass == Pass::recompute ? 3.0 : op.pass == Pass::backward ? 2.0 : 1.0);
    return costs_.layer_floor() * block.layers * passes;
  }

  /// Buffers that an op of another stream reads: what writes them must end where it ends.
  static std::vector<bool> read_elsewhere(const Block& block, const std::vector<Op>& ops) {
    std::vector<bool> shared(block.buffers.size(), false);
    for (const Op& op : ops)
      if (op.stream != Stream::compute)
        for (const int buffer : op.reads) shared[index(buffer)] = true;
    return shared;
  }

  static void wait_for(ScriptStep& step, Dependency dependency) {
    for (Dependency& other : step.waits) {
      if (other.lane != dependency.lane) continue;
      other.count = std::max(other.count, dependency.count);
      return;
    }
    step.waits.push_back(dependency);
  }

  /// Adds a compute op to the compute step just issued, when nothing can come between them.
  bool fuse(const ScriptStep& step) {
    if (!may_fuse_ || step.kind != ScriptStepKind::local || step.lane != Lane::compute || !step.waits.empty())
      return false;
    ScriptStep& last = slot_.steps.back();
    if (last.kind != ScriptStepKind::local || last.lane != Lane::compute || last.part != step.part) return false;
    last.seconds += step.seconds;
    last.peak = std::max(last.peak, last.net + step.peak);
    last.net += step.net;
    return true;
  }

  [[nodiscard]] bool runs_now(const ChunkOp& op) const {
    if (op.pass != instruction_.pass) return false;
    switch (op.when) {
    case When::every:
      return true;
    case When::first_micro_batch:
      return instruction_.micro_batch == 0;
    case When::last_micro_batch:
      return instruction_.micro_batch == program_.micro_batches - 1;
    }
    return false;
  }

  void between(int position, bool before) {
    for (const ChunkOp& op : chunk_.between) {
      if (op.position != position || op.before != before || !runs_now(op)) continue;
      ScriptStep step = step_of(op.op, position, kBetweenBlocks);
      // A reduction follows the compute before it. A prefetch waits for the start of a block; one "at once" only for
      // its own stream.
      step.after = before || step.lane == Lane::compute ? -1 : done(Lane::compute);
      add_memory(step, op.allocates.value, 0, 0);
      const int number = push(std::move(step));
      if (op.waits_for >= 0) late_.push_back({number, op.waits_for, true});
      if (op.needed_at >= 0) late_.push_back({number, op.needed_at, false});
    }
  }

  /// Ties prefetches to the blocks that start them and the blocks that wait for them, now that all are placed.
  void resolve() {
    for (const Late& late : late_) {
      FORETRAIN_CHECK(late.position < static_cast<int>(begins_.size()), "a chunk op names a block of its chunk");
      const int begin = begins_[index(late.position)];
      ScriptStep& op = slot_.steps[index(late.step)];
      if (late.starts) {
        op.after = begin;
        continue;
      }
      const std::vector<int>& compute = slot_.by_lane[at(Lane::compute)];
      const int waits = waits_[index(late.position)];
      if (waits >= static_cast<int>(compute.size())) continue;
      const std::vector<int>& own = slot_.by_lane[at(op.lane)];
      const auto place = std::find(own.begin(), own.end(), late.step) - own.begin();
      if (op.lane != Lane::compute)
        wait_for(slot_.steps[index(compute[index(waits)])], {op.lane, static_cast<int>(place) + 1});
    }
  }

  struct Late {
    int step = 0;
    int position = 0;
    bool starts = false;
  };
  const Program& program_;
  const Instruction& instruction_;
  ScriptOptions options_;
  ScriptCosts& costs_;
  const Chunk& chunk_;
  ScriptSlot slot_;
  Writer carried_;
  std::vector<int> begins_; ///< of each block: compute steps of the slot before it
  std::vector<int> waits_;  ///< the same before what is copied for it
  std::vector<Late> late_;
  bool may_fuse_ = false;
};

} // namespace

ScriptSlot build_slot(const Program& program, const Role& role, const Instruction& instruction, ScriptOptions options,
                      ScriptCosts& costs) {
  return SlotBuilder(program, role, instruction, options, costs).build();
}

} // namespace foretrain
