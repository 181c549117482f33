#pragma once

#include "planner/validate/row.h"

/// The protocol's split. Groups are whole (model, device, number of devices); one in five is held out: no constant is
/// fitted to a row of it. Seed and rule are fixed here, so that figures of two versions compare.
namespace foretrain::validation {

inline constexpr std::uint64_t kSplitSeed = 20261129;
inline constexpr std::uint64_t kSplitParts = 5; ///< one of them is held out

[[nodiscard]] std::string group_of(const RowFeatures& features);
[[nodiscard]] bool is_held_out(const RowFeatures& features);

} // namespace foretrain::validation
