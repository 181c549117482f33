#pragma once

#include "core/program/program.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// What launching one pass of a block takes the host, in forwards of a dense layer (docs/formulas.md, "Host").
[[nodiscard]] double launches(const Block& block, Pass pass);

/// What a step takes the host beside its passes, in forwards of a dense layer: the clipping's gradient norm is read
/// back, so that optimizer, zeroing and the next step's first kernels are launched while the device waits.
inline constexpr double kStepLaunches = 8;

/// What the host runs between a batch of blocking transfers that it waited for and the first kernel after it, in
/// forwards of a dense layer: the schedule's step, the model's wrappers or autograd's engine, the first norm. The
/// device idles meanwhile; what is launched later runs ahead again. An estimate.
inline constexpr double kRestart = 0.25;
/// Seconds of it; 0 where the host does not wait. Frameworks of Megatron's family with its interleaved schedule run
/// Megatron-LM's core/pipeline_parallel/p2p_communication.py, which waits for the device after each batch
/// (batch_p2p_sync).
[[nodiscard]] double restart_seconds(const Semantics& semantics);

} // namespace foretrain
