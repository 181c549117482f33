#pragma once

#include <limits>

#include "core/base/json.h"

namespace foretrain {

/// A number that was written; JSON has no NaN and no infinity, which are written as null: null reads as NaN.
[[nodiscard]] inline double number_or_nan(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

} // namespace foretrain
