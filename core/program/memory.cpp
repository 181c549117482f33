#include "core/program/memory.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/program/for_each_op.h"

namespace foretrain {
namespace {

std::size_t index(MemoryPart part) {
  return static_cast<std::size_t>(part);
}

/// Calls `between(op, allocate)` and `block(block, position)` in issue order. A collective's buffer is allocated when
/// it is issued and freed once the block that it names has run.
template <class Between, class OnBlock>
void walk_slot(const Program& program, const Role& role, const Instruction& slot, Between&& between,
               OnBlock&& on_block) {
  const Chunk& chunk = role.chunks[static_cast<std::size_t>(slot.chunk)];
  const int count = static_cast<int>(chunk.blocks.size());
  for (int step = 0; step < count; ++step) {
    const int position = slot.pass == Pass::forward ? step : count - 1 - step;
    const auto issue = [&](bool before) {
      for (const ChunkOp& op : chunk.between)
        if (op.position == position && op.before == before && op.allocates.value > 0 && op_runs(program, op, slot))
          between(op, true);
    };
    issue(true);
    on_block(program.blocks[static_cast<std::size_t>(chunk.blocks[static_cast<std::size_t>(position)])], position);
    issue(false);
    for (const ChunkOp& op : chunk.between)
      if (op.freed_after == position && op.frees.value > 0 && op_runs(program, op, slot)) between(op, false);
  }
}

/// The running sum of what a stage holds, with its highest value.
struct Held {
  Bytes now;
  Bytes peak;
  void add(Bytes bytes) {
    now += bytes;
    peak = std::max(peak, now);
  }
};

Bytes transfer_bytes(const Role& role, const Instruction& instruction) {
  switch (instruction.kind) {
  case InstructionKind::receive:
    return role.boundary;
  case InstructionKind::wait_send:
  case InstructionKind::release_send:
    return Bytes(-role.boundary.value);
  case InstructionKind::slot:
  case InstructionKind::send:
  case InstructionKind::wait_receive:
  case InstructionKind::step:
    return Bytes(0);
  }
  return Bytes(0);
}

Bytes persistent_of(const Role& role) {
  Bytes total;
  for (const Persistent& entry : role.persistent) total += entry.bytes;
  return total;
}

template <class SlotFold> std::vector<MemoryPoint> timeline(const Role& role, SlotFold&& fold) {
  std::vector<MemoryPoint> points;
  points.reserve(role.instructions.size());
  Held held{persistent_of(role), Bytes(0)};
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const Instruction& instruction = role.instructions[i];
    held.peak = held.now;
    if (instruction.kind == InstructionKind::slot) {
      const Block::Memory memory = fold(instruction);
      held.peak = held.now + memory.peak;
      held.now += memory.net;
    } else if (instruction.kind == InstructionKind::step) {
      held.peak = held.now + role.step_peak[static_cast<std::size_t>(instruction.step)];
    } else {
      held.add(transfer_bytes(role, instruction));
    }
    points.push_back({static_cast<int>(i), held.now, held.peak});
  }
  return points;
}

/// Bytes by part, and where the highest sum was.
struct PartsHeld {
  MemoryParts now{};
  MemoryParts at_peak{};
  Bytes sum;
  Bytes peak;
  std::string where;
  void add(MemoryPart part, Bytes bytes) {
    now[index(part)] += bytes;
    sum += bytes;
  }
  void mark(Bytes scratch, const std::string& place) {
    if (sum + scratch <= peak) return;
    peak = sum + scratch;
    at_peak = now;
    at_peak[index(MemoryPart::temporaries)] += scratch;
    where = place;
  }
};

std::string pass_name(Pass pass) {
  switch (pass) {
  case Pass::forward:
    return "forward";
  case Pass::backward:
    return "backward";
  case Pass::input:
    return "input gradients";
  case Pass::weight:
    return "weight gradients";
  case Pass::recompute:
    return "recomputation";
  case Pass::step:
    return "step";
  }
  return "?";
}

/// Net change by part of one block in one pass.
MemoryParts net_parts(const Block& block, Pass pass) {
  MemoryParts parts{};
  for (const Op& op : block.ops(pass)) {
    for (const int b : op.allocates)
      parts[index(block.buffers[static_cast<std::size_t>(b)].part)] += block.buffers[static_cast<std::size_t>(b)].bytes;
    for (const int b : op.frees)
      parts[index(block.buffers[static_cast<std::size_t>(b)].part)] -= block.buffers[static_cast<std::size_t>(b)].bytes;
  }
  return parts;
}

/// Walks one slot op by op and notes the peak with its parts.
void walk_ops(const Program& program, const Role& role, const Instruction& slot, PartsHeld& held) {
  const Chunk& chunk = role.chunks[static_cast<std::size_t>(slot.chunk)];
  const std::string slot_name = fmt::format("{} of micro-batch {}", pass_name(slot.pass), slot.micro_batch);
  walk_slot(
      program, role, slot,
      [&](const ChunkOp& op, bool allocate) {
        held.add(op.memory_part, allocate ? op.allocates : Bytes(-op.frees.value));
        held.mark(Bytes(0), slot_name + ", collective between blocks");
      },
      [&](const Block& block, int position) {
        for (const Op& op : block.ops(slot.pass)) {
          for (const int b : op.allocates)
            held.add(block.buffers[static_cast<std::size_t>(b)].part, block.buffers[static_cast<std::size_t>(b)].bytes);
          const int layer = chunk.layers[static_cast<std::size_t>(position)];
          held.mark(op.scratch,
                    layer < 0 ? slot_name + ", " + block.name : fmt::format("{}, layer {}", slot_name, layer));
          for (const int b : op.frees)
            held.add(block.buffers[static_cast<std::size_t>(b)].part,
                     Bytes(-block.buffers[static_cast<std::size_t>(b)].bytes.value));
        }
      });
}

} // namespace

Block::Memory slot_memory(const Program& program, const Role& role, const Instruction& slot) {
  Block::Memory memory;
  const Chunk& chunk = role.chunks[static_cast<std::size_t>(slot.chunk)];
  const bool holds = std::any_of(chunk.between.begin(), chunk.between.end(), [&](const ChunkOp& op) {
    return op.allocates.value > 0 && op_runs(program, op, slot);
  });
  if (!holds) { // blocks alone, the common case
    const std::size_t count = chunk.blocks.size();
    for (std::size_t step = 0; step < count; ++step) {
      const std::size_t position = slot.pass == Pass::forward ? step : count - 1 - step;
      memory = then(memory, program.blocks[static_cast<std::size_t>(chunk.blocks[position])].memory(slot.pass));
    }
    return memory;
  }
  walk_slot(
      program, role, slot,
      [&](const ChunkOp& op, bool allocate) {
        const Bytes bytes = allocate ? op.allocates : Bytes(-op.frees.value);
        memory = then(memory, Block::Memory{bytes, std::max(Bytes(0), bytes), 0});
      },
      [&](const Block& block, int) { memory = then(memory, block.memory(slot.pass)); });
  return memory;
}

std::vector<MemoryPoint> memory_timeline(const Program& program, const Role& role) {
  // Slots of a chunk and pass differ only where a collective runs in the first or last micro-batch.
  const int last = program.micro_batches - 1;
  std::vector<std::pair<Instruction, Block::Memory>> known;
  return timeline(role, [&](const Instruction& slot) {
    Instruction key = slot;
    key.micro_batch = slot.micro_batch == 0 ? 0 : slot.micro_batch == last ? last : std::min(1, last);
    for (const auto& [seen, memory] : known)
      if (seen == key) return memory;
    known.emplace_back(key, slot_memory(program, role, key));
    return known.back().second;
  });
}

std::vector<MemoryPoint> memory_timeline_by_op(const Program& program, const Role& role) {
  return timeline(role, [&](const Instruction& slot) {
    Held held;
    walk_slot(
        program, role, slot,
        [&](const ChunkOp& op, bool allocate) { held.add(allocate ? op.allocates : Bytes(-op.frees.value)); },
        [&](const Block& block, int) {
          for (const Op& op : block.ops(slot.pass)) {
            for (const int b : op.allocates) held.add(block.buffers[static_cast<std::size_t>(b)].bytes);
            held.peak = std::max(held.peak, held.now + op.scratch);
            for (const int b : op.frees) held.now -= block.buffers[static_cast<std::size_t>(b)].bytes;
          }
        });
    return Block::Memory{held.now, held.peak, 0};
  });
}

StageMemory stage_memory(const Program& program, const Role& role) {
  const std::vector<MemoryPoint> points = memory_timeline(program, role);
  const auto peak = std::max_element(points.begin(), points.end(),
                                     [](const MemoryPoint& a, const MemoryPoint& b) { return a.peak < b.peak; });
  PartsHeld held;
  for (const Persistent& entry : role.persistent) held.add(entry.part, entry.bytes);
  held.mark(Bytes(0), "between steps");
  if (peak != points.end()) {
    for (const MemoryPoint& point : points) {
      const Instruction& instruction = role.instructions[static_cast<std::size_t>(point.instruction)];
      const bool here = point.instruction == peak->instruction;
      if (instruction.kind == InstructionKind::slot) {
        if (here) {
          walk_ops(program, role, instruction, held);
          break;
        }
        const Chunk& chunk = role.chunks[static_cast<std::size_t>(instruction.chunk)];
        for (const int block : chunk.blocks) {
          const MemoryParts parts = net_parts(program.blocks[static_cast<std::size_t>(block)], instruction.pass);
          for (std::size_t p = 0; p < parts.size(); ++p) held.add(static_cast<MemoryPart>(p), parts[p]);
        }
      } else if (instruction.kind == InstructionKind::step) {
        if (here) held.mark(role.step_peak[static_cast<std::size_t>(instruction.step)], "step end");
      } else {
        const MemoryPart part = instruction.pass == Pass::forward ? MemoryPart::activations : MemoryPart::temporaries;
        held.add(part, transfer_bytes(role, instruction));
        if (here) held.mark(Bytes(0), "transfer between stages");
      }
      if (here) break;
    }
    FORETRAIN_CHECK(held.peak == peak->peak, "slots and ops give the same peak");
  }

  StageMemory memory;
  memory.allocated = held.peak;
  const Bytes fragmentation(static_cast<std::int64_t>(program.fragmentation * static_cast<double>(held.peak.value)));
  memory.reserved = memory.allocated + fragmentation;
  memory.device = memory.reserved + role.outside;
  memory.parts = held.at_peak;
  memory.parts[index(MemoryPart::fragmentation)] += fragmentation;
  memory.parts[index(MemoryPart::context)] += role.outside;
  memory.peak_at = held.where;
  return memory;
}

} // namespace foretrain
