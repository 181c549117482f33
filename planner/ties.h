#pragma once

#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/spec/intervals.h"
#include "planner/search.h"

namespace foretrain {

/// Ranked plans within the best one's own part of the interval: between plans of one study the rest of the error is
/// shared, so that their order is not settled. The best one counts.
[[nodiscard]] int tied_with_best(const std::vector<Candidate>& ranked, const std::optional<Intervals>& intervals);

/// Mechanisms that a layout runs beside plain data parallelism: each degree above one, sequence parallelism, chunks, a
/// split backward, sharding past the optimizer's, recomputation, offload, an uneven cut.
[[nodiscard]] int moving_parts(const Layout& layout);

/// Index of the plan to take among the first that tie (`ranked` is best first): one that leaves a tenth of the device's
/// memory free before one that does not (more than that is of no use, less hangs on the memory's own error), then fewer
/// moving parts, then more free memory, then the faster. Without a capacity, parts, memory and time decide. −1: no
/// plan.
[[nodiscard]] int preferred_of(const std::vector<Candidate>& ranked, const std::optional<Intervals>& intervals,
                               std::optional<Bytes> capacity);

} // namespace foretrain
