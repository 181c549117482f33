#pragma once

#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// What an 8- or 4-bit recipe does to linear layers. Attention, norms, router, embedding, head and everything that adds
/// up stay in 16 bits or more. Sources: docs/formulas.md, "8 and 4 bits".
struct LowPrecision {
  bool active = false;
  DType type = DType::fp8;    ///< of the operands of the products
  double activation = 1;      ///< bytes of one quantised activation, scales included
  double weight = 1;          ///< bytes of one quantised weight, scales included
  double gathered_weight = 1; ///< bytes of one weight as data-parallel ranks gather it, where weights lie quantised
  int directions = 2;         ///< copies of a quantised tensor that the products read: by rows, and by columns
  double passes = 1;          ///< reads of the 16-bit tensor: two where its largest value must be known first
  bool fused_norm = false;    ///< a norm writes its output quantised, without a 16-bit one
  bool keeps_input = true;    ///< a linear layer keeps its input quantised, not in 16 bits
  bool own_copy = true;       ///< also where something else keeps that input in 16 bits anyway
  bool cached_weights = true; ///< weights are quantised once per step and stay
};

[[nodiscard]] LowPrecision low_precision(const JobSpec& job, const Semantics& semantics, const DeviceSpec& device);

} // namespace foretrain
