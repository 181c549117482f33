#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "core/program/program.h"
#include "core/spec/plan.h"
#include "executor/parameters.h"

namespace foretrain {

/// What the segments of one micro-batch need beside buffers: sizes of this rank, tokens, where the loss goes.
struct SegmentContext {
  const Plan* plan = nullptr;
  std::int64_t tp_index = 0;
  std::int64_t tokens = 0; ///< of a micro-batch
  bool sequence_parallel = false;
  at::Tensor ids;        ///< [tokens]
  at::Tensor targets;    ///< [tokens]
  double loss_scale = 1; ///< 1 / tokens of the global batch
  double loss = 0;       ///< added to, not scaled
};

/// A block of one micro-batch: its ops' buffers, and its parameters in the order of the block's list.
struct BlockState {
  const Block* block = nullptr;
  int chunk = 0;
  int position = 0;
  int layer = -1;
  std::vector<at::Tensor> buffers;
};

/// Runs a compute op of a block on its buffers; those that it writes exist.
void run_segment(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context);

} // namespace foretrain
