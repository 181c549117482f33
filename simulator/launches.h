#pragma once

#include "core/program/program.h"

namespace foretrain {

/// What launching one pass of a block takes the host, in forwards of a dense layer (docs/formulas.md, "Host").
[[nodiscard]] double launches(const Block& block, Pass pass);

/// What a step takes the host beside its passes, in forwards of a dense layer: the clipping's gradient norm is read
/// back, so that optimizer, zeroing and the next step's first kernels are launched while the device waits.
inline constexpr double kStepLaunches = 8;

} // namespace foretrain
