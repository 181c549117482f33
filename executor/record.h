#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/program/program.h"

namespace foretrain {

/// "ffn_up", "all-reduce tp": what an op does, without its place.
[[nodiscard]] std::string name_of(const Op& op);

/// Where an op stands in a step. Ops of a slot have a block position; transfers between stages and ops of the step's
/// end have none (−1).
struct OpPlace {
  int instruction = 0; ///< index into Role::instructions
  Pass pass = Pass::forward;
  int chunk = 0;
  int micro_batch = 0;
  int position = -1; ///< block position in the chunk
  int layer = -1;    ///< of the model; −1 embedding and head, kBetweenBlocks for what lies between blocks
  std::string name;
  bool operator==(const OpPlace&) const = default;
};
/// "forward of micro-batch 0, chunk 0, block 2: ffn_up": for error messages.
[[nodiscard]] std::string to_string(const OpPlace& place);

/// What the interpreter did, written when it was done.
struct OpRecord {
  OpPlace place;
  std::int64_t bytes = 0; ///< that the tensors of a transfer had, in the counting of `Op::bytes`; 0 for compute
  double start = 0;       ///< seconds since the step began
  double end = 0;
};

/// One step of one rank.
struct StepRecord {
  int step = 0;
  int rank = 0;
  double loss = 0;          ///< this rank's share: the ranks' shares add up to the mean over the global batch
  double gradient_norm = 0; ///< of the whole model, before clipping
  double seconds = 0;
  std::int64_t peak_bytes = -1; ///< highest of the allocator since the step began; −1: not counted
  int live_buffers = 0;         ///< buffers that nobody freed by the end of the step: 0, or the Program is wrong
  std::vector<OpRecord> ops;
};
/// `with_ops`: the list of ops too.
[[nodiscard]] Json to_json(const StepRecord& record, bool with_ops);

/// What a rank must do in one step, from the Program alone, in order.
[[nodiscard]] std::vector<OpPlace> places_of(const Program& program, const Role& role);

/// The place of a transfer instruction or of an op of the step's end.
[[nodiscard]] OpPlace place_of(const Role& role, int instruction);

} // namespace foretrain
