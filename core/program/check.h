#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.h"

namespace foretrain {

/// What can be wrong with a Program.
enum class ProblemKind {
  structure, ///< an index points nowhere, a pass or a micro-batch is missing or runs twice
  order,     ///< a slot runs before what it needs, a wait comes before what it waits for
  pairing,   ///< a send without its receive, or sends and receives of two stages in different orders
  batch,     ///< transfers of one batch are not issued together
  deadlock,  ///< every rank waits
  memory,    ///< a buffer is freed twice, or never
  group,     ///< ranks that share groups issue their collectives in different orders
};
[[nodiscard]] std::string_view id_of(ProblemKind kind);

struct Problem {
  ProblemKind kind = ProblemKind::structure;
  int stage = -1;       ///< -1: of the whole Program
  int instruction = -1; ///< index into Role::instructions; -1: none
  std::string text;     ///< a sentence
  bool operator==(const Problem&) const = default;
};

/// The static check: everything that an interpreter takes for granted. Linear in the number of instructions. An empty
/// list means that the Program runs to its end when sends are rendezvous: they last until the receive is posted, and
/// transfers of one pass go one batch after the other, sends and receives apart.
/// Later checks are left out when an earlier one found that indices point nowhere.
[[nodiscard]] std::vector<Problem> check(const Program& program);

} // namespace foretrain
