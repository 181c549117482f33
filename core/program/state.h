#pragma once

#include "core/base/units.h"
#include "core/program/precision.h"
#include "core/program/program.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// Bytes of one element of model state before sharding, by recipe. Megatron-LM
/// docs/user-guide/features/dist_optimizer.md: bf16 weights with fp32 gradients 2 + 4 + 4 + 4 + 4 = 18, with bf16
/// gradients 16, fp16 20, fp32 16.
struct StateWidths {
  double parameter = 0;
  double gradient = 0;      ///< the buffer into which micro-batches accumulate
  double gradient_copy = 0; ///< further gradient copy that is sharded with the optimizer (fp16's fp32 copy; ZeRO-2's)
  double master = 0;
  double moments = 0; ///< of element-wise optimizers; Adafactor and Muon depend on the shape
};
[[nodiscard]] StateWidths state_widths(const JobSpec& job, const Semantics& semantics, const ShardingChoice& sharding);

/// State of parameters on one rank, sharding applied; bytes.
struct StateBytes {
  Bytes parameters;
  Bytes gradients;      ///< `step_gradients` among them
  Bytes step_gradients; ///< those that are there only while the step runs
  Bytes master;
  Bytes moments;
  Bytes host; ///< what lies on the host instead
  StateBytes& operator+=(const StateBytes& other);
  [[nodiscard]] Bytes device() const { return parameters + gradients + master + moments; }
  bool operator==(const StateBytes&) const = default;
};

/// State of one parameter whose optimizer state (and, by `sharding`, gradient and weight) is spread over `shard` ranks.
/// A frozen one has its weight alone; one that lies quantised has it in the recipe's type.
[[nodiscard]] StateBytes state_bytes(const Parameter& parameter, int shard, const JobSpec& job,
                                     const Semantics& semantics, const LowPrecision& low,
                                     const ShardingChoice& sharding, bool offload);

/// Memory traffic of the optimizer step per owned element: AdamW with fp32 state reads gradient, weight and two moments
/// and writes weight, moments and the half-precision copy: 30 bytes.
[[nodiscard]] double optimizer_traffic(const JobSpec& job, const Semantics& semantics, const ShardingChoice& sharding);

/// DeepSpeed's own estimate of model states on one GPU (deepspeed/runtime/zero/stage3.py and stage_1_and_2.py): what
/// its users compare against. `parameters` whole model, `largest_layer` elements, `world` GPUs.
enum class ZeroOffload { none, optimizer, optimizer_and_parameters };
[[nodiscard]] Bytes deepspeed_estimate(int stage, std::int64_t parameters, std::int64_t largest_layer, int world,
                                       ZeroOffload offload);

} // namespace foretrain
