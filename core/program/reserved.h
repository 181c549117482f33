#pragma once

#include <optional>

#include "core/program/memory.h"

namespace foretrain {

/// What the caching allocator reserves for two steps of a stage, and whether a device with `limit` bytes for it has
/// room for them.
struct Reserved {
  Bytes peak;
  bool fits = true;
};

/// The stage's ops in order, each tensor by itself:
/// - what is there for the whole step is made before; moments are made by the first step (torch.optim);
/// - a weight's gradient is a tensor of its own, which is then added to what has gathered
///   (torch/csrc/autograd/functions/accumulate_grad.h);
/// - the host is taken to run one slot ahead of the device: what a transfer used on its own stream can be taken again
///   when the next slot begins;
/// - of the micro-batches as many run as fill the pipeline and four more: the rest repeats them.
[[nodiscard]] Reserved reserved_memory(const Program& program, const Role& role, Bytes limit);

/// `stage_memory`; where the framework's allocator is replayed (Program::replays_allocator), with what it reserves on a
/// device of `capacity`: without limit where that fits, else what remains once it has given back what it can, and where
/// that does not fit either, what it would take.
[[nodiscard]] StageMemory stage_memory_within(const Program& program, const Role& role, std::optional<Bytes> capacity);

} // namespace foretrain
