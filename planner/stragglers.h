#pragma once

namespace foretrain {

/// Mean of the largest of n independent standard normal deviations; log-linear between tabulated n (docs/formulas.md,
/// "Stragglers").
[[nodiscard]] double expected_maximum(int ranks);

} // namespace foretrain
