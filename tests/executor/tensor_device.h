#pragma once

#include <memory>

#include "executor/device.h"

namespace foretrain::executor_fixtures {

/// What a GPU's ranks do, on the host: kernels by LibTorch's operators, numbers read after the step, larger chunks,
/// optimizer state in memory that is kept. Its order is the host's: nothing runs later.
[[nodiscard]] std::unique_ptr<Device> tensor_device();

} // namespace foretrain::executor_fixtures
