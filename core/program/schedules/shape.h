#pragma once

#include <optional>
#include <string>

#include "core/program/schedules/schedule.h"

namespace foretrain {

/// What every schedule needs of a shape: positive counts, a size within kScheduleLimit, one chunk unless
/// `takes_chunks`, no group size unless it takes chunks.
[[nodiscard]] std::optional<Rejection> check_shape(const Schedule& schedule, const ScheduleShape& shape);

/// The remark on pipelines with fewer micro-batches than `needed`; empty when there are enough.
[[nodiscard]] std::string underfilled(const ScheduleShape& shape, int needed);

} // namespace foretrain
