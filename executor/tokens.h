#pragma once

#include <cstdint>
#include <vector>

#include "core/spec/plan.h"

namespace foretrain {

/// Positions in a sequence of the tokens that a context-parallel rank holds, in the order of its rows. Where keys
/// travel or are gathered a rank has one piece from the front and the mirrored one from the back, so that all see
/// equally many keys (zigzag); Ulysses gives each rank one piece, so that its exchange restores the order.
[[nodiscard]] std::vector<std::int64_t> token_positions(const Plan& plan, int cp_index);

} // namespace foretrain
