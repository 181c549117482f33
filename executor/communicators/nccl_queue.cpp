#include "executor/communicators/nccl_queue.h"

#include <stdexcept>
#include <thread>

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{1};

} // namespace

void check_cuda(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

void check_nccl(ncclResult_t result, ncclComm_t communicator, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string text = std::string(what) + ": " + ncclGetErrorString(result);
  if (const char* last = ncclGetLastError(communicator); last && *last) text += std::string(" (") + last + ")";
  throw std::runtime_error(text);
}

CudaEvent::CudaEvent() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
}
CudaEvent::~CudaEvent() {
  (void)cudaEventDestroy(event_);
}

NcclQueue::NcclQueue(const ncclUniqueId& id, int rank, int size, std::chrono::milliseconds timeout)
    : timeout_(timeout) {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0; // a peer that does not come must not hold this one for ever
  try {
    settle(ncclCommInitRankConfig(&communicator_, size, id, rank, &config), "joining a communicator");
  } catch (...) {
    abort();
    (void)cudaStreamDestroy(stream_);
    throw;
  }
}

NcclQueue::~NcclQueue() {
  if (communicator_) (void)ncclCommAbort(communicator_); // destroying would wait for peers that may be gone
  (void)cudaStreamDestroy(stream_);
}

/// A communicator that does not block answers "in progress" until it is done.
void NcclQueue::settle(ncclResult_t result, const char* what) {
  check_nccl(result, communicator_, what);
  const Clock::time_point deadline = Clock::now() + timeout_;
  while (result == ncclInProgress) {
    check_nccl(ncclCommGetAsyncError(communicator_, &result), communicator_, what);
    check_nccl(result, communicator_, what);
    if (result != ncclInProgress) return;
    if (Clock::now() > deadline) throw std::runtime_error(std::string(what) + ": no answer from a peer");
    std::this_thread::sleep_for(kLook);
  }
}

std::shared_ptr<CudaEvent> NcclQueue::issue(cudaStream_t compute, std::vector<at::Tensor> tensors,
                                            const Operation& operation, const char* what) {
  if (!communicator_) throw std::runtime_error(std::string(what) + ": the communicator was given up");
  sweep();
  CudaEvent ready;
  ready.record(compute);
  ready.block(stream_);
  settle(operation(communicator_, stream_), what);
  auto event = std::make_shared<CudaEvent>();
  event->record(stream_);
  held_.push_back({event, std::move(tensors)});
  return event;
}

void NcclQueue::sweep() {
  while (!held_.empty() && held_.front().event->done()) held_.pop_front();
}

void NcclQueue::check_health(const char* what) {
  if (!communicator_) throw std::runtime_error(std::string(what) + ": the communicator was given up");
  ncclResult_t state = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(communicator_, &state), communicator_, what);
  check_nccl(state, communicator_, what);
}

void NcclQueue::finish(std::chrono::milliseconds timeout, const char* what) {
  const Clock::time_point deadline = Clock::now() + timeout;
  try {
    for (sweep(); !held_.empty(); sweep()) {
      check_health(what);
      if (Clock::now() > deadline)
        throw std::runtime_error(std::string(what) + ": not done within " + std::to_string(timeout.count() / 1000) +
                                 " s");
      std::this_thread::sleep_for(kLook);
    }
  } catch (...) {
    abort();
    throw;
  }
}

void NcclQueue::abort() {
  if (communicator_) (void)ncclCommAbort(communicator_);
  communicator_ = nullptr;
  held_.clear();
}

} // namespace foretrain
