#include "core/program/precision.h"

namespace foretrain {
namespace {

constexpr double kFp32 = 4;        // bytes of a scale
constexpr double kBlock = 128;     // blockwise: 1 × 128 values of an activation, 128 × 128 of a weight
constexpr double kMicroBlock = 32; // MXFP8: values that share a one-byte exponent
constexpr double kFp4Block = 16;   // NVFP4: values that share a one-byte scale
constexpr double kHalf = 2;        // bytes of a 16-bit weight

/// Products whose operands need not be transposed: one copy serves both directions (TransformerEngine
/// is_non_tn_fp8_gemm_supported: compute capability 10 and later).
bool reads_both_ways(const DeviceSpec& device) {
  return device.architecture.find("Blackwell") != std::string::npos;
}

LowPrecision per_tensor(const DeviceSpec& device) {
  LowPrecision low;
  low.directions = reads_both_ways(device) ? 1 : 2;
  return low;
}

} // namespace

LowPrecision low_precision(const JobSpec& job, const Semantics& semantics, const DeviceSpec& device) {
  LowPrecision low;
  switch (job.precision) {
  case Precision::fp64:
  case Precision::fp32:
  case Precision::bf16:
  case Precision::fp16:
    return low;
  case Precision::fp8_delayed:
    low = per_tensor(device);
    low.fused_norm = true;
    low.own_copy = semantics.quantised_own_copy;
    break;
  case Precision::fp8_current:
    low = per_tensor(device);
    low.passes = 2;
    low.own_copy = false;
    break;
  case Precision::fp8_blockwise:
    low.activation = 1 + kFp32 / kBlock;
    low.weight = 1 + kFp32 / (kBlock * kBlock);
    low.own_copy = false;
    break;
  case Precision::mxfp8:
    low.activation = low.weight = 1 + 1 / kMicroBlock;
    low.gathered_weight = kHalf; // gathered in 16 bits through the gradient buffer, then quantised both ways
    low.fused_norm = true;
    low.own_copy = false;
    break;
  case Precision::nvfp4:
    low.type = DType::fp4;
    low.activation = low.weight = 0.5 + 1 / kFp4Block;
    low.gathered_weight = kHalf;
    low.passes = 2;
    low.own_copy = false;
    break;
  }
  low.active = true;
  low.keeps_input = semantics.quantised_activations;
  low.cached_weights = semantics.quantised_weight_cache;
  return low;
}

} // namespace foretrain
