#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"

/// What a rank does in a step as a flat list: predictions, recordings and measurements of an op share its number here.
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

/// What a rank must do in one step, in order. An op's number is its index here.
[[nodiscard]] std::vector<OpPlace> places_of(const Program& program, const Role& role);

/// The place of a transfer instruction or of an op of the step's end.
[[nodiscard]] OpPlace place_of(const Role& role, int instruction);

/// Calls `visit(place, op)` for each entry of `places_of`; `op` is null for transfers between stages.
template <class Visit> void for_each_place(const Program& program, const Role& role, Visit&& visit) {
  for (int index = 0; index < static_cast<int>(role.instructions.size()); ++index) {
    const Instruction& instruction = role.instructions[static_cast<std::size_t>(index)];
    if (instruction.kind != InstructionKind::slot) {
      const bool at_end = instruction.kind == InstructionKind::step;
      visit(place_of(role, index), at_end ? &role.step[static_cast<std::size_t>(instruction.step)] : nullptr);
      continue;
    }
    for_each_op(program, role, instruction, [&](const Op& op, int position, int layer) {
      visit(OpPlace{index, op.pass, instruction.chunk, instruction.micro_batch, position, layer, name_of(op)}, &op);
    });
  }
}

} // namespace foretrain
