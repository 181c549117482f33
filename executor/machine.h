#pragma once

#include "core/base/json.h"

namespace foretrain {

/// What a run is made on: host, processor, cores, memory, operating system. What cannot be read is left out.
[[nodiscard]] Json describe_machine();

} // namespace foretrain
