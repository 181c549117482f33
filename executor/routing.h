#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "executor/kernels/experts.h"

namespace foretrain {

/// Rows of a mixture-of-experts layer on their way, known at run time only. Ranks are members of the group that holds
/// one copy of the experts; a rank of expert-tensor parallelism gets the rows of all of its partners.
struct Routing {
  std::vector<std::int64_t> chosen;   ///< rows of this rank per expert of the model
  std::vector<std::int64_t> sends;    ///< rows to each expert-parallel rank
  std::vector<std::int64_t> receives; ///< rows from each expert-parallel rank
  std::vector<std::int64_t> gathered; ///< rows that each expert-tensor-parallel partner has received
  /// Rows per (source, expert of this rank): sources in the order in which their rows arrive.
  std::vector<std::vector<std::int64_t>> arrived;
  std::vector<std::int64_t> per_expert;        ///< rows of each expert of this rank
  std::optional<kernels::SortedCopies> sorted; ///< of the layer's choice, once the host has seen it
  [[nodiscard]] std::int64_t rows() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : per_expert) sum += count;
    return sum;
  }
};

} // namespace foretrain
