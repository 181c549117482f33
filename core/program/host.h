#pragma once

#include <vector>

#include "core/program/program.h"
#include "core/spec/plan.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// What ranks hold in their machine's memory, beside the devices.
struct HostMemory {
  std::vector<Bytes> optimizer;       ///< per rank: peak of an optimizer that is there; 0 where it is on the device
  std::vector<Bytes> checkpoint_copy; ///< per rank: what a checkpoint that is written in the background copies
  Bytes node_optimizer;               ///< on the machine that holds most, all its ranks together
  Bytes node_checkpoint_copy;
};

/// A checkpoint has every element of the model once: the weight (its fp32 copy where training is in half precision) and
/// the optimizer's moments, from the rank that updates it and, of replicas, from the first one. So a rank copies
/// nothing where others count, and with sharded optimizer state its share.
[[nodiscard]] HostMemory host_memory(const Plan& plan, const Semantics& semantics, const Program& program);

} // namespace foretrain
