#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/result.h"
#include "core/program/program.h"
#include "executor/communicator.h"
#include "executor/communicators/device_link.h"

namespace foretrain {

/// Opens a channel of `link` for each group that `program` uses on `rank`, and one per neighbour, direction and pass
/// for transfers between stages; every rank of the program must do so with the same store. Tensors may be in the
/// device's memory or in the host's.
///
/// Collectives are waited for where they are issued, so a rank has never two of them at once: groups that cross cannot
/// hold each other up, whatever order the device takes. Transfers between stages wait beside them: each lane carries
/// one direction of one pass, where both stages have the same order (core/program/check.h). Other sends and receives go
/// together when the first of them is waited for.
/// Error: a rank does not come within the time.
[[nodiscard]] Result<std::unique_ptr<Communicator>> connect_devices(const Program& program, int rank,
                                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                                    std::unique_ptr<DeviceLink> link);

} // namespace foretrain
