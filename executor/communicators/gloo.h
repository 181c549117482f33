#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/result.h"
#include "core/program/program.h"
#include "executor/communicator.h"

namespace foretrain {

struct GlooOptions {
  std::string address = "127.0.0.1"; ///< this machine's address in the network that the ranks share
  std::chrono::milliseconds timeout{60'000};
};

/// Connects the groups that `program` uses on `rank`; every rank of the program must do so with the same store.
/// Error: a rank does not come within the time.
[[nodiscard]] Result<std::unique_ptr<Communicator>> connect_gloo(const Program& program, int rank,
                                                                 const c10::intrusive_ptr<c10d::Store>& store,
                                                                 const GlooOptions& options);

} // namespace foretrain
