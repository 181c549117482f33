#include "simulator/script.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/base/check.h"

namespace foretrain {
namespace {

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

/// Asks for the cost of an op once: equal layers share their ops.
class Costs {
public:
  Costs(const Program& program, const Durations& durations, Script& script)
      : program_(program), durations_(durations), script_(script) {}

  [[nodiscard]] double layer_floor() const { return durations_.layer_floor(); }

  /// Fills kind, duration and wire of a step that runs `op`. Collectives of one rank take no time.
  void fill(ScriptStep& step, const Op& op) {
    step.op = &op;
    step.lane = lane_of(op.stream);
    step.part = op.part;
    step.group = op.group;
    const auto [it, fresh] = known_.try_emplace(&op);
    if (fresh) {
      if (op.kind != OpKind::collective) {
        it->second.seconds = durations_.local_seconds(op);
      } else if (program_.mesh.size(op.group) > 1) {
        it->second.wire = static_cast<int>(script_.traffic.size());
        script_.traffic.push_back(durations_.collective(op));
        script_.groups_used[index(static_cast<int>(op.group))] = true;
      }
    }
    step.seconds = it->second.seconds;
    step.wire = it->second.wire;
    if (step.wire >= 0) step.kind = ScriptStepKind::collective;
  }

  /// Wire of a pipeline transfer.
  int transfer(Bytes bytes, int tier) {
    const auto [it, fresh] =
        transfers_.try_emplace(std::pair(bytes.value, tier), static_cast<int>(script_.traffic.size()));
    if (fresh) script_.traffic.push_back(durations_.transfer(bytes, tier));
    return it->second;
  }

private:
  struct Known {
    double seconds = 0;
    int wire = -1;
  };
  const Program& program_;
  const Durations& durations_;
  Script& script_;
  std::unordered_map<const Op*, Known> known_;
  std::map<std::pair<std::int64_t, int>, int> transfers_;
};

/// Who wrote a buffer last: `count` steps of `lane` done means that it is there.
struct Writer {
  Lane lane = Lane::compute;
  int count = -1; ///< -1: nobody in this slot
};

/// Flattens one slot. Dependencies come from what ops read and write: across the blocks of a slot, a block's input is
/// the output of the block before, and a gradient likewise.
class SlotBuilder {
public:
  SlotBuilder(const Program& program, const Role& role, const Instruction& instruction, ScriptOptions options,
              Costs& costs)
      : program_(program), instruction_(instruction), options_(options), costs_(costs),
        chunk_(role.chunks[index(instruction.chunk)]) {}

  ScriptSlot build() {
    ScriptStep gate;
    gate.kind = ScriptStepKind::gate;
    gate.entry = true;
    push(std::move(gate));
    const int count = static_cast<int>(chunk_.blocks.size());
    begins_.assign(index(count), 0);
    for (int i = 0; i < count; ++i) {
      const int position = instruction_.pass == Pass::forward ? i : count - 1 - i;
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
      if (begin >= static_cast<int>(compute.size())) continue;
      const std::vector<int>& own = slot_.by_lane[at(op.lane)];
      const auto place = std::find(own.begin(), own.end(), late.step) - own.begin();
      if (op.lane != Lane::compute)
        wait_for(slot_.steps[index(compute[index(begin)])], {op.lane, static_cast<int>(place) + 1});
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
  Costs& costs_;
  const Chunk& chunk_;
  ScriptSlot slot_;
  Writer carried_;
  std::vector<int> begins_;
  std::vector<Late> late_;
  bool may_fuse_ = false;
};

/// Lists the instructions of one role.
class RoleBuilder {
public:
  RoleBuilder(const Program& program, const Role& role, ScriptOptions options, Costs& costs, Script& script)
      : program_(program), role_(role), options_(options), costs_(costs), script_(script) {}

  RoleScript build() {
    for (const Instruction& instruction : role_.instructions) add(instruction);
    return std::move(out_);
  }

private:
  using Key = std::tuple<int, int, int>; ///< pass, chunk, micro-batch

  static Key key(const Instruction& instruction) {
    return {static_cast<int>(instruction.pass), instruction.chunk, instruction.micro_batch};
  }

  void add(const Instruction& instruction) {
    const bool forward = instruction.pass == Pass::forward;
    const Lane sends = forward ? Lane::send_forward : Lane::send_backward;
    const Lane receives = forward ? Lane::receive_forward : Lane::receive_backward;
    ScriptInstruction next;
    next.base = out_.total;
    switch (instruction.kind) {
    case InstructionKind::slot: {
      next.slot = slot_of(instruction);
      // The slot that a receive feeds: forward, or whichever pass consumes the gradient of the output.
      if (instruction.pass != Pass::weight)
        if (const auto it = received_.find(feed(instruction)); it != received_.end())
          next.waits.push_back({receives, it->second});
      push(std::move(next), instruction);
      if (instruction.pass != Pass::weight) produced_[feed(instruction)] = out_.total;
      return;
    }
    case InstructionKind::receive:
      next.slot = transfer_slot(ScriptStepKind::receive, receives);
      next.net = role_.boundary.value;
      transfer(next, instruction);
      push(std::move(next), instruction);
      received_[key(instruction)] = out_.total[at(receives)];
      return;
    case InstructionKind::send: {
      next.slot = transfer_slot(ScriptStepKind::send, sends);
      transfer(next, instruction);
      const auto it = produced_.find(key(instruction));
      FORETRAIN_CHECK(it != produced_.end(), "a send follows the slot whose result it sends");
      for (const Lane lane : {Lane::compute, Lane::tp, Lane::cp, Lane::ep})
        if (it->second[at(lane)] > 0) next.waits.push_back({lane, it->second[at(lane)]});
      push(std::move(next), instruction);
      sent_[key(instruction)] = out_.total[at(sends)];
      return;
    }
    case InstructionKind::wait_receive:
      if (const auto it = received_.find(key(instruction)); it != received_.end())
        next.waits.push_back({receives, it->second});
      next.slot = gate_slot();
      push(std::move(next), instruction);
      return;
    case InstructionKind::wait_send:
      if (const auto it = sent_.find(key(instruction)); it != sent_.end()) next.waits.push_back({sends, it->second});
      next.net = -role_.boundary.value;
      next.slot = gate_slot();
      push(std::move(next), instruction);
      return;
    case InstructionKind::release_send:
      next.net = -role_.boundary.value;
      next.slot = empty_slot();
      push(std::move(next), instruction);
      return;
    case InstructionKind::step:
      next.slot = step_slot(instruction.step);
      for (int lane = 0; lane < kLanes; ++lane)
        if (out_.total[index(lane)] > 0) next.waits.push_back({static_cast<Lane>(lane), out_.total[index(lane)]});
      push(std::move(next), instruction);
      return;
    }
  }

  /// I and B consume the gradient that a receive of the backward direction brings.
  static Key feed(const Instruction& slot) {
    const Pass pass = slot.pass == Pass::forward ? Pass::forward : Pass::backward;
    return {static_cast<int>(pass), slot.chunk, slot.micro_batch};
  }

  void push(ScriptInstruction instruction, const Instruction& source) {
    const ScriptSlot& slot = script_.slots[index(instruction.slot)];
    const int number = static_cast<int>(out_.instructions.size());
    for (int lane = 0; lane < kLanes; ++lane) {
      const int steps = static_cast<int>(slot.by_lane[index(lane)].size());
      if (steps > 0) out_.by_lane[index(lane)].push_back(number);
      out_.total[index(lane)] += steps;
    }
    out_.instructions.push_back(std::move(instruction));
    out_.source.push_back(source);
  }

  void transfer(ScriptInstruction& next, const Instruction& instruction) {
    next.peer = instruction.peer;
    const int stages = program_.stages;
    const int here = program_.mesh.on_stage(0, role_.stage);
    const int there = program_.mesh.on_stage(0, ((role_.stage + instruction.peer) % stages + stages) % stages);
    const int tier = here == there ? 0 : program_.mesh.tier_between(here, there);
    next.wire = costs_.transfer(role_.boundary, tier);
  }

  int slot_of(const Instruction& instruction) {
    const bool first = instruction.micro_batch == 0;
    const bool last = instruction.micro_batch == program_.micro_batches - 1;
    const std::tuple<int, int, bool, bool> variant{static_cast<int>(instruction.pass), instruction.chunk, first, last};
    const auto found = slots_.find(variant);
    if (found != slots_.end()) return found->second;
    SlotBuilder builder(program_, role_, instruction, options_, costs_);
    const int number = add_slot(builder.build());
    slots_[variant] = number;
    return number;
  }

  int add_slot(ScriptSlot slot) {
    script_.slots.push_back(std::move(slot));
    return static_cast<int>(script_.slots.size()) - 1;
  }

  int single(ScriptStep step) {
    ScriptSlot slot;
    slot.by_lane[at(step.lane)].push_back(0);
    slot.steps.push_back(std::move(step));
    return add_slot(std::move(slot));
  }

  int transfer_slot(ScriptStepKind kind, Lane lane) {
    int& slot = transfers_[at(lane)];
    if (slot >= 0) return slot;
    ScriptStep step;
    step.kind = kind;
    step.lane = lane;
    step.part = TimePart::pp;
    step.entry = true;
    // A send is issued behind the compute before it; so is a blocking receive. Others are posted ahead.
    if (kind == ScriptStepKind::send || program_.blocking_p2p) step.after = 0;
    return slot = single(std::move(step));
  }

  int gate_slot() {
    if (gate_ >= 0) return gate_;
    ScriptStep step;
    step.kind = ScriptStepKind::gate;
    step.entry = true;
    return gate_ = single(std::move(step));
  }

  int empty_slot() {
    if (empty_ < 0) empty_ = add_slot(ScriptSlot{});
    return empty_;
  }

  int step_slot(int number) {
    FORETRAIN_CHECK(number >= 0 && number < static_cast<int>(role_.step.size()), "a step instruction names an op");
    const Op& op = role_.step[index(number)];
    ScriptStep step;
    costs_.fill(step, op);
    step.entry = true;
    if (index(number) < role_.step_peak.size()) step.peak = role_.step_peak[index(number)].value;
    return single(std::move(step));
  }

  const Program& program_;
  const Role& role_;
  ScriptOptions options_;
  Costs& costs_;
  Script& script_;
  RoleScript out_;
  std::map<std::tuple<int, int, bool, bool>, int> slots_;
  std::map<Key, int> received_;
  std::map<Key, int> sent_;
  std::map<Key, LaneCounts> produced_;
  std::array<int, kLanes> transfers_ = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  int gate_ = -1;
  int empty_ = -1;
};

} // namespace

Lane lane_of(Stream stream) {
  switch (stream) {
  case Stream::compute:
    return Lane::compute;
  case Stream::tp:
    return Lane::tp;
  case Stream::cp:
    return Lane::cp;
  case Stream::ep:
    return Lane::ep;
  case Stream::gradients:
    return Lane::gradients;
  case Stream::parameters:
    return Lane::parameters;
  case Stream::host:
    return Lane::host;
  case Stream::p2p_forward:
    return Lane::send_forward;
  case Stream::p2p_backward:
    return Lane::send_backward;
  }
  return Lane::compute;
}

Script build_script(const Program& program, const Durations& durations, ScriptOptions options) {
  Script script;
  script.program = &program;
  Costs costs(program, durations, script);
  for (const Role& role : program.roles)
    script.roles.push_back(RoleBuilder(program, role, options, costs, script).build());
  return script;
}

} // namespace foretrain
