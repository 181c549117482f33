#include "core/program/state.h"

#include <cmath>

#include "core/base/check.h"
#include "core/program/context.h"

namespace foretrain {
namespace {

double width_of(DType type) {
  return bits_of(type) / 8.0;
}

bool half_precision(Precision precision) {
  return precision != Precision::fp32 && precision != Precision::fp64;
}

/// Elements of moments that shape-dependent optimizers keep, per element of the parameter.
double moment_elements(OptimizerKind kind, const Parameter& parameter, bool momentum) {
  const auto elements = static_cast<double>(parameter.local_elements());
  const bool matrix = parameter.local.size() >= 2;
  switch (kind) {
  case OptimizerKind::adamw:
  case OptimizerKind::adamw_8bit:
    return 2;
  case OptimizerKind::lion:
    return 1;
  case OptimizerKind::sgd:
    return momentum ? 1 : 0;
  case OptimizerKind::muon:
    return matrix && parameter.name.find("embedding") == std::string::npos && parameter.name != "head" ? 1 : 2;
  case OptimizerKind::adafactor: {
    if (!matrix || elements == 0) return 1;
    // One row and one column of second moments per matrix (arXiv:1804.04235).
    const auto columns = static_cast<double>(parameter.local.back());
    const auto rows = static_cast<double>(parameter.local[parameter.local.size() - 2]);
    const double matrices = elements / (rows * columns);
    return matrices * (rows + columns) / elements;
  }
  }
  return 2;
}

double moment_width(const JobSpec& job) {
  const OptimizerChoice& optimizer = job.optimizer;
  if (job.precision == Precision::fp64) return 8; // nothing of an exact run is narrower
  // Block-wise quantised moments: one byte, and one fp32 scale for 256 of them (arXiv:2110.02861).
  constexpr double kQuantised = 1 + 4.0 / 256;
  return optimizer.kind == OptimizerKind::adamw_8bit ? kQuantised : width_of(optimizer.moments);
}

Bytes share(double bytes_per_element, std::int64_t elements, int parts) {
  const std::int64_t owned = (elements + parts - 1) / parts;
  return Bytes(static_cast<std::int64_t>(std::ceil(bytes_per_element * static_cast<double>(owned) - 1e-9)));
}

} // namespace

StateWidths state_widths(const JobSpec& job, const Semantics& semantics, const ShardingChoice& sharding) {
  StateWidths w;
  const bool half = half_precision(job.precision);
  const double working = width_of(activation_dtype(job.precision));
  const bool resident_fp32 = half && semantics.parameter == DType::fp32;
  w.parameter = resident_fp32 ? 4 : working;
  w.gradient = half ? width_of(job.gradient) : working;
  w.master = half && semantics.master_weights && !resident_fp32 ? 4 : 0;
  // fp16 training unscales into an fp32 copy; it is sharded with the optimizer.
  if (job.precision == Precision::fp16 && job.gradient == DType::fp16) w.gradient_copy = 4;
  // DeepSpeed partitions half-precision gradients beside the fp32 ones of stage 2.
  if (semantics.family == SemanticsFamily::zero && sharding.kind == ShardingKind::gradients && half)
    w.gradient_copy = working;
  if (semantics.half_gradients_beside && job.precision == Precision::bf16 && job.gradient == DType::fp32)
    w.gradient += working;
  w.moments = moment_elements(job.optimizer.kind, Parameter{}, job.optimizer.momentum) * moment_width(job);
  return w;
}

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  step_gradients += other.step_gradients;
  master += other.master;
  moments += other.moments;
  host += other.host;
  return *this;
}

StateBytes state_bytes(const Parameter& parameter, int shard, const JobSpec& job, const Semantics& semantics,
                       const LowPrecision& low, const ShardingChoice& sharding, bool offload) {
  StateWidths w = state_widths(job, semantics, sharding);
  const bool resident_fp32 = semantics.parameter == DType::fp32;
  // A frozen weight lies in one direction; its transpose is made for the product (NeMo:
  // disable_parameter_transpose_cache).
  if (parameter.quantised && job.quantised_weights && !resident_fp32)
    w.parameter = low.weight * (parameter.frozen ? 1 : low.directions);
  if (parameter.frozen) {
    StateBytes state;
    state.parameters =
        share(w.parameter, parameter.local_elements(), sharding.kind == ShardingKind::parameters ? shard : 1);
    return state;
  }
  const std::int64_t elements = parameter.local_elements();
  const int optimizer_parts = sharding.kind == ShardingKind::none ? 1 : shard;
  const bool splits_gradients = sharding.kind == ShardingKind::gradients || sharding.kind == ShardingKind::parameters;
  StateBytes state;
  state.parameters = share(w.parameter, elements, sharding.kind == ShardingKind::parameters ? shard : 1);
  state.gradients =
      share(w.gradient, elements, splits_gradients ? shard : 1) + share(w.gradient_copy, elements, optimizer_parts);
  // fp16's fp32 copy is made by the step and dropped after it (Megatron-LM megatron/core/optimizer/optimizer.py,
  // _copy_model_grads_to_main_grads and zero_grad; deepspeedai/DeepSpeed runtime/zero/stage_1_and_2.py, step).
  if (job.precision == Precision::fp16 && semantics.family != SemanticsFamily::foretrain)
    state.step_gradients = share(w.gradient_copy, elements, optimizer_parts);
  state.master = share(w.master, elements, optimizer_parts);
  state.moments = share(moment_elements(job.optimizer.kind, parameter, job.optimizer.momentum) * moment_width(job),
                        elements, optimizer_parts);
  if (offload) {
    state.host = state.master + state.moments;
    // The step needs weights where it works: those of the master, or a copy.
    if (state.master.value == 0) state.host += share(w.parameter, elements, optimizer_parts);
    state.master = Bytes(0);
    state.moments = Bytes(0);
  }
  return state;
}

double optimizer_traffic(const JobSpec& job, const Semantics& semantics, const ShardingChoice& sharding) {
  const StateWidths w = state_widths(job, semantics, sharding);
  const double weight = w.master > 0 ? w.master : w.parameter;
  const double copy = w.master > 0 ? w.parameter : 0;
  return w.gradient + 2 * weight + 2 * w.moments + copy;
}

Bytes deepspeed_estimate(int stage, std::int64_t parameters, std::int64_t largest_layer, int world,
                         ZeroOffload offload) {
  FORETRAIN_CHECK(stage == 2 || stage == 3, "DeepSpeed estimates stages 2 and 3");
  const auto p = static_cast<double>(parameters);
  const double n = world;
  double bytes = 0;
  if (stage == 2)
    bytes = offload == ZeroOffload::none ? 2 * p + 18 * p / n : 2 * p;
  else {
    bytes = 4.0 * static_cast<double>(largest_layer);
    if (offload == ZeroOffload::none) bytes += 18 * p / n;
    if (offload == ZeroOffload::optimizer) bytes += 2 * p / n;
  }
  return Bytes(std::llround(bytes));
}

} // namespace foretrain
