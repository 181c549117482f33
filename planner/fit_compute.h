#pragma once

#include <vector>

#include "core/spec/calibration.h"
#include "core/spec/cluster.h"
#include "planner/calibrate.h"

/// The parts of a calibration that compute ops tell.
namespace foretrain {

/// Seconds per second at peak, as the calibration's share of the peak: at most `most`, since a stated peak may be
/// nominal.
[[nodiscard]] double share(double coefficient, double most);

/// Time of memory-bound ops: so much per kernel, so much per byte.
struct MemoryFit {
  double launch = 0;
  double per_byte = 0;
};
/// Error: fewer than four such ops.
[[nodiscard]] Result<MemoryFit> fit_memory(const std::vector<ProbedOp>& ops);

/// Memory-bound operators that were seen often enough, each with its own figures.
[[nodiscard]] std::vector<OperatorModel> fit_operators(const std::vector<ProbedOp>& ops);

/// Time = overhead + FLOP / (peak · efficiency of the role) · (1 + half_tokens / tokens). `gemm.half_tokens` stays
/// where the ops have one number of tokens. Errors: fewer than four products, a device without the peak of a precision.
[[nodiscard]] Result<void> set_products(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory,
                                        GemmModel& gemm);

/// Attention works on blocks of queries and meets keys that a mask then hides: its work per counted FLOP falls with the
/// length, as 1 + half_sequence / length. Errors: none was probed, a device without the peak of a precision.
[[nodiscard]] Result<void> set_attention(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory,
                                         AttentionModel& attention);

} // namespace foretrain
