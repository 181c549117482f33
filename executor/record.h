#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/json.h"
#include "core/program/places.h"
#include "executor/transfer.h"

namespace foretrain {

/// What the interpreter did, written when it was done.
struct OpRecord {
  OpPlace place;
  std::int64_t bytes = 0; ///< that the tensors of a transfer had, in the counting of `Op::bytes`; 0 for compute
  double start = 0;       ///< seconds since the step began
  double end = 0;
  /// Where a device moves data on a queue of its own: when what the op issued ran there, from the first to the last.
  std::optional<TransferTime> transfer;
};

/// One step of one rank.
struct StepRecord {
  int step = 0;
  int rank = 0;
  double loss = 0;                ///< this rank's share: the ranks' shares add up to the mean over the global batch
  std::optional<double> mtp_loss; ///< the same of multi-token prediction, not weighted; empty: the model has none
  double gradient_norm = 0;       ///< of the whole model, before clipping
  double seconds = 0;
  double began = 0;             ///< seconds since 1970: puts the ranks' steps on one axis
  std::int64_t peak_bytes = -1; ///< highest of the allocator since the step began; −1: not counted
  /// The same within each instruction of the role (slots, transfers, ops of the step's end), by its index; empty: not
  /// counted.
  std::vector<std::int64_t> peaks;
  std::int64_t peak_reserved_bytes = -1; ///< the same of what a device's allocator has from its driver; −1: none has
  std::int64_t host_peak_bytes = -1;     ///< the same of what an optimizer on the host holds there; −1: none is
  int live_buffers = 0; ///< buffers that nobody freed by the end of the step: 0, or the Program is wrong
  std::vector<OpRecord> ops;
};
/// `with_ops`: the list of ops too.
[[nodiscard]] Json to_json(const StepRecord& record, bool with_ops);

} // namespace foretrain
