#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <ATen/ATen.h>

namespace foretrain {

/// Throw std::runtime_error with what was done and what the library says.
void check_cuda(cudaError_t result, const char* what);
void check_nccl(ncclResult_t result, ncclComm_t communicator, const char* what);

/// An event that is reused: made once, recorded on one stream, waited for by another.
class CudaEvent {
public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "recording an event"); }
  void block(cudaStream_t stream) const { check_cuda(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event"); }
  [[nodiscard]] bool done() const { return cudaEventQuery(event_) == cudaSuccess; }

private:
  cudaEvent_t event_ = nullptr;
};

/// A communicator of NCCL on a stream of its own. What is issued here runs in order; queues run beside each other, so
/// that sends and receives, which each wait for the other side, are kept in different ones.
class NcclQueue {
public:
  /// Every member calls this with the same id; returns when all have. Throws when one does not come within the time.
  NcclQueue(const ncclUniqueId& id, int rank, int size, std::chrono::milliseconds timeout);
  ~NcclQueue();
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;

  using Operation = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  /// Issues after what `compute` has issued so far. The tensors are held until the operation is done, instead of being
  /// recorded on the stream: the allocator then frees them when the Program says, not when it happens to look.
  std::shared_ptr<CudaEvent> issue(cudaStream_t compute, std::vector<at::Tensor> tensors, const Operation& operation,
                                   const char* what);
  /// Lets go of tensors whose operations are done.
  void sweep();
  /// Waits on the host. Throws when a peer failed or the time is up, after giving the communicator up.
  void finish(std::chrono::milliseconds timeout, const char* what);
  /// Throws when the library has noticed a failure since.
  void check_health(const char* what);
  /// Ends operations that wait for a peer that is gone.
  void abort();

private:
  struct Held {
    std::shared_ptr<CudaEvent> event;
    std::vector<at::Tensor> tensors;
  };
  void settle(ncclResult_t result, const char* what);

  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::chrono::milliseconds timeout_;
  std::deque<Held> held_;
};

} // namespace foretrain
