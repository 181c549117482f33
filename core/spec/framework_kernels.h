#pragma once

#include <filesystem>

#include "core/base/result.h"
#include "core/spec/calibration.h"
#include "core/spec/cluster.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// A framework on a device of this kind: how fast its hosts launch, and how its kernels compare with those that the
/// device was calibrated with (data/kernels.json).
struct OnDevice {
  Semantics semantics;     ///< launch times scaled by the speed of such devices' hosts
  Calibration calibration; ///< attention at the speed of the framework's generation, streaming kernels with its traffic
};

/// Error: the file does not read, a generation of attention that it does not list.
[[nodiscard]] Result<OnDevice> on_device(const Semantics& semantics, const Calibration& calibration,
                                         const DeviceSpec& device, const std::filesystem::path& data);

} // namespace foretrain
