#pragma once

#include <chrono>
#include <memory>

#include <cuda_runtime_api.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/result.h"
#include "core/program/program.h"
#include "executor/communicator.h"

namespace foretrain {

struct NcclOptions {
  int device = 0;                 ///< of CUDA; ranks of one machine take different ones
  cudaStream_t compute = nullptr; ///< on which LibTorch's kernels run; null: CUDA's default stream
  std::chrono::milliseconds timeout{60'000};
};

/// Connects the groups that `program` uses on `rank` with NCCL: one communicator and stream per group, and one per
/// neighbour, direction and pass for transfers between stages. Every rank of the program must do so with the same store.
/// The functions return when the operation has been issued and compute waits for it on the device; a failure shows in
/// the next call, and in `barrier`, which waits on the host.
/// Errors: no device of CUDA, a rank does not come within the time.
[[nodiscard]] Result<std::unique_ptr<Communicator>> connect_nccl(const Program& program, int rank,
                                                                 const c10::intrusive_ptr<c10d::Store>& store,
                                                                 const NcclOptions& options);

} // namespace foretrain
