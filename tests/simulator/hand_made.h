#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"
#include "simulator/traffic.h"

/// Small Programs written by hand, with durations that a person can add up.
namespace foretrain::hand_made {

/// An op's duration stands in its `bytes` in microseconds (compute: the first kernel's `bytes`), transfers move `rate`
/// bytes per second undisturbed over one tier.
class PlainDurations final : public Durations {
public:
  double rate = 1e9;           ///< B/s of every transfer
  double latency = 0;          ///< seconds, of every transfer
  double floor = 0;            ///< seconds per layer and pass
  double beside = 1;           ///< rate of collectives beside compute
  double slowdown = 0;         ///< of compute beside transfers
  int collective_tier = 0;     ///< tier that collectives use
  double transfer_seconds = 0; ///< pipeline transfers

  [[nodiscard]] double local_seconds(const Op& op) const override {
    return op.kernels.empty() ? 0 : op.kernels.front().bytes;
  }
  [[nodiscard]] Traffic collective(const Op& op) const override {
    Traffic made = traffic(static_cast<double>(op.bytes.value), collective_tier);
    made.beside = beside;
    return made;
  }
  [[nodiscard]] double layer_floor() const override { return floor; }
  [[nodiscard]] Traffic transfer(Bytes /*bytes*/, int tier) const override {
    return traffic(transfer_seconds * rate, tier);
  }

private:
  [[nodiscard]] Traffic traffic(double bytes, int tier) const {
    Traffic traffic;
    traffic.wire.latency = bytes > 0 ? latency : 0;
    traffic.wire.seconds = bytes / rate;
    traffic.wire.bytes_per_rank[static_cast<std::size_t>(tier)] = bytes;
    traffic.slowdown = slowdown;
    return traffic;
  }
};

/// A compute op of so many seconds.
inline Op compute(double seconds, std::vector<int> reads = {}, std::vector<int> writes = {}) {
  Op op;
  Kernel kernel;
  kernel.bytes = seconds;
  op.kernels.push_back(kernel);
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  return op;
}

inline Op collective(Group group, Stream stream, TimePart part, std::int64_t bytes, std::vector<int> reads = {},
                     std::vector<int> writes = {}) {
  Op op;
  op.kind = OpKind::collective;
  op.group = group;
  op.stream = stream;
  op.part = part;
  op.bytes = Bytes(bytes);
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  return op;
}

inline int buffer(Block& block, const std::string& name, std::int64_t bytes, BufferScope scope = BufferScope::block) {
  Buffer made;
  made.name = name;
  made.scope = scope;
  made.bytes = Bytes(bytes);
  block.buffers.push_back(made);
  return static_cast<int>(block.buffers.size()) - 1;
}

/// One block, one chunk per role.
inline Program program_of(Layout layout, std::vector<int> fanouts, Block block, int micro_batches,
                          bool blocking = false) {
  Program program;
  program.mesh = Mesh(layout, std::move(fanouts));
  program.stages = layout.pp;
  program.micro_batches = micro_batches;
  program.blocking_p2p = blocking;
  finish_block(block, false);
  program.blocks.push_back(std::move(block));
  for (int stage = 0; stage < layout.pp; ++stage) {
    Role role;
    role.stage = stage;
    Chunk chunk;
    chunk.depth = stage;
    chunk.blocks = {0};
    chunk.layers = {stage};
    role.chunks.push_back(chunk);
    program.roles.push_back(role);
  }
  return program;
}

inline Instruction slot(Pass pass, int micro_batch) {
  Instruction instruction;
  instruction.pass = pass;
  instruction.micro_batch = micro_batch;
  return instruction;
}

inline Instruction move(InstructionKind kind, Pass pass, int micro_batch, int peer) {
  Instruction instruction = slot(pass, micro_batch);
  instruction.kind = kind;
  instruction.peer = peer;
  return instruction;
}

/// GPipe: all forwards, then all backwards, with transfers beside compute.
inline void gpipe(Program& program) {
  const int last = program.stages - 1;
  for (int stage = 0; stage <= last; ++stage) {
    std::vector<Instruction>& list = program.roles[static_cast<std::size_t>(stage)].instructions;
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const bool forward = pass == Pass::forward;
      const bool receives = forward ? stage > 0 : stage < last;
      const bool sends = forward ? stage < last : stage > 0;
      for (int micro_batch = 0; micro_batch < program.micro_batches; ++micro_batch) {
        if (receives) list.push_back(move(InstructionKind::receive, pass, micro_batch, forward ? -1 : 1));
        list.push_back(slot(pass, micro_batch));
        if (sends) {
          list.push_back(move(InstructionKind::send, pass, micro_batch, forward ? 1 : -1));
          list.push_back(move(InstructionKind::release_send, pass, micro_batch, forward ? 1 : -1));
        }
      }
    }
  }
}

} // namespace foretrain::hand_made
