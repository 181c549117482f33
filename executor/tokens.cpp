#include "executor/tokens.h"

namespace foretrain {

std::vector<std::int64_t> token_positions(const Plan& plan, int cp_index) {
  const std::int64_t length = plan.job.sequence_length;
  const std::int64_t ranks = plan.layout.cp;
  std::vector<std::int64_t> positions;
  const auto piece = [&](std::int64_t index, std::int64_t pieces) {
    for (std::int64_t i = index * length / pieces; i < (index + 1) * length / pieces; ++i) positions.push_back(i);
  };
  if (ranks == 1 || plan.layout.context_parallel.kind == ContextKind::ulysses) {
    piece(cp_index, ranks);
    return positions;
  }
  piece(cp_index, 2 * ranks);
  piece(2 * ranks - 1 - cp_index, 2 * ranks);
  return positions;
}

} // namespace foretrain
