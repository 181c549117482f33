#include "core/program/reserved.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "core/program/allocator.h"
#include "core/program/for_each_op.h"

namespace foretrain {
namespace {

constexpr int kMoreMicroBatches = 4; ///< beyond those that fill the pipeline

/// Replays a role's tensors on an allocator.
class TensorReplay {
public:
  TensorReplay(const Program& program, const Role& role, Bytes limit)
      : program_(program), role_(role), allocator_(limit) {}

  Reserved run() {
    for (const Persistent& entry : role_.persistent)
      if (entry.part != MemoryPart::moments) allocator_.allocate(entry.bytes);
    constexpr int kSteps = 2;
    for (int step = 0; step < kSteps && !allocator_.failed(); ++step) one_step(step == 0);
    return {allocator_.peak_reserved(), !allocator_.failed()};
  }

private:
  enum class Kind { buffer, activation_border, gradient_border, between };
  /// Kind, chunk, micro-batch, position, index.
  using Key = std::tuple<Kind, int, int, int, int>;
  struct Tensor {
    int block = CachingAllocator::kNone;
    bool shared = false; ///< used on another stream
  };

  void make(const Key& key, Bytes bytes) {
    release(key);
    tensors_[key] = {allocator_.allocate(bytes), false};
  }

  void release(const Key& key) {
    const auto found = tensors_.find(key);
    if (found == tensors_.end()) return;
    if (found->second.shared)
      allocator_.free_later(found->second.block);
    else
      allocator_.free(found->second.block);
    tensors_.erase(found);
  }

  void scratch(Bytes bytes, bool shared) {
    const int block = allocator_.allocate(bytes);
    if (shared)
      allocator_.free_later(block);
    else
      allocator_.free(block);
  }

  static Key key_of(const Block& block, const Instruction& slot, int position, int buffer) {
    switch (block.buffers[static_cast<std::size_t>(buffer)].scope) {
    case BufferScope::input:
      return {Kind::activation_border, slot.chunk, slot.micro_batch, position, 0};
    case BufferScope::output:
      return {Kind::activation_border, slot.chunk, slot.micro_batch, position + 1, 0};
    case BufferScope::grad_output:
      return {Kind::gradient_border, slot.chunk, slot.micro_batch, position + 1, 0};
    case BufferScope::grad_input:
      return {Kind::gradient_border, slot.chunk, slot.micro_batch, position, 0};
    case BufferScope::block:
      break;
    }
    return {Kind::buffer, slot.chunk, slot.micro_batch, position, buffer};
  }

  void run_block(const Instruction& slot, int position) {
    const Chunk& chunk = role_.chunks[static_cast<std::size_t>(slot.chunk)];
    const Block& block = program_.blocks[static_cast<std::size_t>(chunk.blocks[static_cast<std::size_t>(position)])];
    for (const Op& op : block.ops(slot.pass)) {
      const bool elsewhere = op.stream != Stream::compute;
      for (const int b : op.allocates)
        make(key_of(block, slot, position, b), block.buffers[static_cast<std::size_t>(b)].bytes);
      if (elsewhere)
        for (const std::vector<int>* list : {&op.reads, &op.writes})
          for (const int b : *list)
            if (const auto used = tensors_.find(key_of(block, slot, position, b)); used != tensors_.end())
              used->second.shared = true;
      scratch(op.scratch, elsewhere);
      for (const int index : op.weight_gradients)
        scratch(Bytes(block.parameters[static_cast<std::size_t>(index)].local_elements() * kGradientWidth), false);
      for (const int b : op.frees) release(key_of(block, slot, position, b));
    }
  }

  void run_slot(const Instruction& slot) {
    allocator_.synchronise();
    const Chunk& chunk = role_.chunks[static_cast<std::size_t>(slot.chunk)];
    const int count = static_cast<int>(chunk.blocks.size());
    const auto between = [&](const ChunkOp& op) {
      return Key{Kind::between, slot.chunk, slot.micro_batch, static_cast<int>(slot.pass),
                 static_cast<int>(&op - chunk.between.data())};
    };
    for (int step = 0; step < count; ++step) {
      const int position = slot.pass == Pass::forward ? step : count - 1 - step;
      const auto issue = [&](bool before) {
        for (const ChunkOp& op : chunk.between)
          if (op.position == position && op.before == before && op.allocates.value > 0 && op_runs(program_, op, slot)) {
            make(between(op), op.allocates);
            tensors_[between(op)].shared = true;
          }
      };
      issue(true);
      run_block(slot, position);
      issue(false);
      for (const ChunkOp& op : chunk.between)
        if (op.freed_after == position && op.frees.value > 0 && op_runs(program_, op, slot)) release(between(op));
    }
  }

  /// A tensor that travels between stages: the input of the chunk's first block or its last one's gradient arrives,
  /// the output of the last block or the first one's gradient leaves.
  void transfer(const Instruction& instruction) {
    const int count = static_cast<int>(role_.chunks[static_cast<std::size_t>(instruction.chunk)].blocks.size());
    const bool forward = instruction.pass == Pass::forward;
    const bool arrives = instruction.kind == InstructionKind::receive;
    const int border = forward == arrives ? 0 : count;
    const Key key{forward ? Kind::activation_border : Kind::gradient_border, instruction.chunk, instruction.micro_batch,
                  border, 0};
    if (arrives) {
      make(key, role_.boundary);
      tensors_[key].shared = true;
    } else {
      release(key);
    }
  }

  void one_step(bool first) {
    const int most = std::min(program_.micro_batches, program_.stages + kMoreMicroBatches);
    for (const Instruction& instruction : role_.instructions) {
      if (allocator_.failed()) return;
      const bool of_micro_batch = instruction.kind != InstructionKind::step;
      // The last micro-batch is the one whose backward reduces gradients: it stands at the end of those that run.
      if (of_micro_batch && instruction.micro_batch >= most - 1 &&
          instruction.micro_batch != program_.micro_batches - 1)
        continue;
      switch (instruction.kind) {
      case InstructionKind::slot:
        run_slot(instruction);
        break;
      case InstructionKind::receive:
      case InstructionKind::wait_send:
      case InstructionKind::release_send:
        transfer(instruction);
        break;
      case InstructionKind::step:
        allocator_.synchronise();
        scratch(role_.step_peak[static_cast<std::size_t>(instruction.step)], false);
        break;
      case InstructionKind::send:
      case InstructionKind::wait_receive:
        break;
      }
    }
    if (!first) return;
    for (const Persistent& entry : role_.persistent)
      if (entry.part == MemoryPart::moments) allocator_.allocate(entry.bytes);
  }

  static constexpr int kGradientWidth = 2; ///< bytes: eager autograd's gradients have the type of the weights

  const Program& program_;
  const Role& role_;
  CachingAllocator allocator_;
  std::map<Key, Tensor> tensors_;
};

} // namespace

Reserved reserved_memory(const Program& program, const Role& role, Bytes limit) {
  return TensorReplay(program, role, limit).run();
}

StageMemory stage_memory_within(const Program& program, const Role& role, std::optional<Bytes> capacity) {
  StageMemory memory = stage_memory(program, role);
  if (!program.replays_allocator) return memory;
  const Bytes endless(std::numeric_limits<std::int64_t>::max() / 2);
  Reserved reserved = reserved_memory(program, role, endless);
  if (capacity && reserved.peak + role.outside > *capacity) {
    const Reserved tight = reserved_memory(program, role, *capacity - role.outside);
    if (tight.fits) reserved = tight;
  }
  const Bytes before = memory.reserved;
  memory.reserved = std::max(memory.allocated, reserved.peak);
  memory.device = memory.reserved + role.outside;
  memory.parts[static_cast<std::size_t>(MemoryPart::fragmentation)] += memory.reserved - before;
  return memory;
}

} // namespace foretrain
