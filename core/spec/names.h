#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"

namespace foretrain {

/// Ids of the enums that outside texts show.
[[nodiscard]] std::string_view id_of(Precision value);
[[nodiscard]] std::string_view id_of(DType value);
[[nodiscard]] std::string_view id_of(OptimizerKind value);
[[nodiscard]] std::string_view id_of(ShardingKind value);
[[nodiscard]] std::string_view id_of(ContextKind value);
[[nodiscard]] std::string_view id_of(DispatchKind value);
[[nodiscard]] std::string_view id_of(RecomputeKind value);
[[nodiscard]] std::string_view id_of(RecomputeMethod value);
[[nodiscard]] std::string_view id_of(RecomputeModule value);
[[nodiscard]] std::string_view id_of(Objective value);
[[nodiscard]] std::string_view id_of(Evidence value);
[[nodiscard]] std::string_view id_of(MemoryPart value);
[[nodiscard]] std::string_view id_of(TimePart value);
[[nodiscard]] std::string_view id_of(Verdict value);
[[nodiscard]] std::string_view id_of(Engine value);
[[nodiscard]] Result<Precision> precision_from(std::string_view text, const std::string& where);
[[nodiscard]] Result<Objective> objective_from(std::string_view text, const std::string& where);
[[nodiscard]] Result<Engine> engine_from(std::string_view text, const std::string& where);

} // namespace foretrain
