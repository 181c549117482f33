#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "core/program/program.h"
#include "core/spec/plan.h"
#include "executor/kernels/kernel_set.h"
#include "executor/parameters.h"
#include "executor/routing.h"

namespace foretrain {

/// How much the loss of multi-token prediction counts beside the main one: λ of DeepSeek-V3 (arXiv:2412.19437, section
/// 4.2) in the last third of its training, and the default of Megatron-LM's `mtp_loss_scaling_factor`.
inline constexpr double kMtpLossWeight = 0.1;

/// What the segments of one micro-batch need beside buffers: sizes of this rank, tokens, where the loss goes.
struct SegmentContext {
  const Plan* plan = nullptr;
  std::int64_t tp_index = 0;
  std::int64_t cp_index = 0;
  std::int64_t ep_index = 0;
  std::int64_t tokens = 0; ///< of a micro-batch, on this rank
  bool sequence_parallel = false;
  const std::vector<std::vector<std::int64_t>>* positions = nullptr; ///< of the tokens of each context-parallel rank
  at::Tensor turns;             ///< of this rank's positions; undefined without rotary positions
  at::Tensor ids;               ///< [tokens]
  at::Tensor targets;           ///< [tokens]: the token after each
  at::Tensor mtp_targets;       ///< [tokens]: the second one after each, as far as known; multi-token prediction only
  std::int64_t first_token = 0; ///< of the global batch: first sequence of the micro-batch · its length
  bool forced_routing = true;   ///< experts by the token's place, so that all get equally many
  double loss_scale = 1;        ///< 1 / tokens of the global batch
  const kernels::KernelSet* kernel_set = nullptr; ///< of the device that has the tensors
  kernels::LossSum loss;                          ///< added to, not scaled
  kernels::LossSum mtp_loss;                      ///< the same, of multi-token prediction
};

/// A block of one micro-batch: its ops' buffers, and its parameters in the order of the block's list.
struct BlockState {
  const Block* block = nullptr;
  int chunk = 0;
  int position = 0;
  int layer = -1;
  std::vector<at::Tensor> buffers;
  std::vector<Routing> routing; ///< per layer of the block
};

/// Runs a compute op of a block on its buffers; those that it writes exist.
void run_segment(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context);

/// Before a compute op's buffers are made: counts the rows of its experts where it makes them known.
void count_rows(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context);
/// Rows of a buffer as they are, not as they were expected.
[[nodiscard]] std::int64_t rows_of(const Buffer& buffer, const Routing& routing);

} // namespace foretrain
