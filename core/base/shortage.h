#pragma once

#include <string>
#include <string_view>

#include "core/base/units.h"

namespace foretrain {

/// "needs 91.2 GiB, the device has 79.1 GiB"; where the two would read alike, with what is missing: "needs 79.1 GiB,
/// the device has 79.1 GiB (3.21 MiB short)".
[[nodiscard]] std::string shortage(Bytes needed, std::string_view who, Bytes available);

} // namespace foretrain
