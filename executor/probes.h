#pragma once

#include <filesystem>

#include "core/base/result.h"
#include "core/program/program.h"
#include "executor/communicator.h"
#include "executor/device.h"

namespace foretrain {

/// Times each collective of the tensor-parallel group over sizes, all members at once; its first member appends a line
/// per figure: `probe` (kind), `ranks`, `bytes` (as Op::bytes counts them), `seconds` (of one in a row of many). On a
/// device of its own first what only it has, in lines of the same form with one rank: `launch` (the host issues a
/// kernel; `bytes` 0), `copy-to-device` and `copy-to-host` (pinned memory), `copy-on-device` (reads and writes
/// `bytes`). Error: a peer is gone.
[[nodiscard]] Result<void> probe(Device& device, Communicator& communicator, const Program& program, int rank,
                                 const std::filesystem::path& out);

} // namespace foretrain
