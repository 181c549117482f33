#pragma once

#include <filesystem>

#include "core/base/result.h"
#include "core/program/program.h"
#include "executor/communicator.h"

namespace foretrain {

/// Times each collective of the tensor-parallel group over sizes, all members at once; its first member appends a line
/// per figure: `probe` (kind), `ranks`, `bytes` (as Op::bytes counts them), `seconds` (of one in a row of many).
/// Error: a peer is gone.
[[nodiscard]] Result<void> probe_collectives(Communicator& communicator, const Program& program, int rank,
                                             const std::filesystem::path& out);

} // namespace foretrain
