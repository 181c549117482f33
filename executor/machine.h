#pragma once

#include "core/base/json.h"

namespace foretrain {

/// Processors that this process may run on (its affinity), at least 1.
[[nodiscard]] int usable_cores();

/// What a run is made on: host, processor, cores, memory, operating system. What cannot be read is left out.
[[nodiscard]] Json describe_machine();

} // namespace foretrain
