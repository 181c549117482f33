#pragma once

#include "core/base/result.h"
#include "executor/checkpoint/checkpoint.h"
#include "executor/communicator.h"
#include "executor/interpreter.h"

namespace foretrain {

/// Tensors of a rank beside their description. On the CPU `data` points into `tensors`, which are the rank's own;
/// elsewhere into copies.
struct RankState {
  std::vector<StatePart> parts;
  std::vector<at::Tensor> tensors; ///< one per part
};

/// What this rank alone must write: weights (their wide copies where there are such) and the optimizer's moments, of
/// the elements that it owns and that are counted here; over all ranks each element once.
[[nodiscard]] RankState owned_state(const Plan& plan, const Mesh& mesh, int rank, Rank& executor);

/// Reads weights, moments and the count of steps. Errors: of `PieceSource::fill`.
[[nodiscard]] Result<void> restore(PieceSource& source, const Plan& plan, const Mesh& mesh, int rank, int steps,
                                   Rank& executor);

/// Reads weights alone; the optimizer starts anew.
[[nodiscard]] Result<void> restore_weights(PieceSource& source, const Plan& plan, const Mesh& mesh, int rank,
                                           Rank& executor);

} // namespace foretrain
