#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

/// The one place that tells NCCL on CUDA from RCCL on HIP: RCCL keeps NCCL's names, and the runtimes differ in a
/// prefix.
#ifdef FORETRAIN_RCCL
#include <hip/hip_runtime_api.h>
#include <rccl/rccl.h>
#define FORETRAIN_GPU(name) hip##name
#else
#include <cuda_runtime_api.h>
#include <nccl.h>
#define FORETRAIN_GPU(name) cuda##name
#endif

namespace foretrain::gpu {

/// Work queues of a device, and the variable that sets how many a process gets: streams beyond them share one, and a
/// receive at the head of it would hold up the send that its peer waits for. Read when the driver starts.
#ifdef FORETRAIN_RCCL
inline constexpr const char* kQueuesVariable = "GPU_MAX_HW_QUEUES";
inline constexpr const char* kLibrary = "RCCL";
using Properties = hipDeviceProp_t;
#else
inline constexpr const char* kQueuesVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
inline constexpr const char* kLibrary = "NCCL";
using Properties = cudaDeviceProp;
#endif
using Status = FORETRAIN_GPU(Error_t);
using Stream = FORETRAIN_GPU(Stream_t);
using Event = FORETRAIN_GPU(Event_t);
inline constexpr const char* kQueues = "32"; ///< the most that CUDA has
inline constexpr Status kSuccess = FORETRAIN_GPU(Success);
inline constexpr Status kNotReady = FORETRAIN_GPU(ErrorNotReady);

/// Throws std::runtime_error with what was done and what the runtime says.
inline void check(Status status, const char* what) {
  if (status != kSuccess) throw std::runtime_error(std::string(what) + ": " + FORETRAIN_GPU(GetErrorString)(status));
}
/// The same of the collective library; of a communicator that does not block, "in progress" is no failure.
inline void check(ncclResult_t result, ncclComm_t communicator, const std::string& what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string text = what + ": " + ncclGetErrorString(result);
  if (const char* last = ncclGetLastError(communicator); last && *last) text += std::string(" (") + last + ")";
  throw std::runtime_error(text);
}

inline Status device_count(int& count) {
  return FORETRAIN_GPU(GetDeviceCount)(&count);
}
inline const char* text_of(Status status) {
  return FORETRAIN_GPU(GetErrorString)(status);
}
inline void use_device(int device) {
  check(FORETRAIN_GPU(SetDevice)(device), "choosing a device");
}
inline std::string name_of(int device) {
  Properties properties{};
  check(FORETRAIN_GPU(GetDeviceProperties)(&properties, device), "asking what a device is");
  return static_cast<const char*>(properties.name);
}
inline std::string bus_of(int device) {
  char id[32] = {};
  check(FORETRAIN_GPU(DeviceGetPCIBusId)(static_cast<char*>(id), sizeof id, device), "asking where a device is");
  return static_cast<const char*>(id);
}

inline Stream new_stream() {
  Stream stream = nullptr;
  check(FORETRAIN_GPU(StreamCreateWithFlags)(&stream, FORETRAIN_GPU(StreamNonBlocking)), "making a stream");
  return stream;
}
inline void destroy(Stream stream) {
  (void)FORETRAIN_GPU(StreamDestroy)(stream);
}
inline void synchronize(Stream stream) {
  check(FORETRAIN_GPU(StreamSynchronize)(stream), "waiting for a stream");
}

/// `timed`: `seconds_between` can read it.
inline Event new_event(bool timed) {
  Event event = nullptr;
  check(FORETRAIN_GPU(EventCreateWithFlags)(&event,
                                            timed ? FORETRAIN_GPU(EventDefault) : FORETRAIN_GPU(EventDisableTiming)),
        "making an event");
  return event;
}
/// Both are done.
inline double seconds_between(Event from, Event to) {
  float milliseconds = 0;
  check(FORETRAIN_GPU(EventElapsedTime)(&milliseconds, from, to), "reading a time");
  return static_cast<double>(milliseconds) * 1e-3;
}
inline void destroy(Event event) {
  (void)FORETRAIN_GPU(EventDestroy)(event);
}
inline void record(Event event, Stream stream) {
  check(FORETRAIN_GPU(EventRecord)(event, stream), "recording an event");
}
/// What comes to `stream` from now on starts after the event.
inline void wait_for(Event event, Stream stream) {
  check(FORETRAIN_GPU(StreamWaitEvent)(stream, event, 0), "waiting for an event");
}
/// Throws when the device failed.
inline bool is_done(Event event) {
  const Status status = FORETRAIN_GPU(EventQuery)(event);
  if (status == kNotReady) return false;
  check(status, "an operation on the device");
  return true;
}

/// Memory of the device, there from its place in the stream's order on.
inline void* allocate(std::size_t bytes, Stream stream) {
  void* memory = nullptr;
  check(FORETRAIN_GPU(MallocAsync)(&memory, bytes, stream), "taking memory of the device");
  return memory;
}
inline void release(void* memory, Stream stream) {
  (void)FORETRAIN_GPU(FreeAsync)(memory, stream);
}
inline void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  check(FORETRAIN_GPU(MemcpyAsync)(to, from, bytes, FORETRAIN_GPU(MemcpyDefault), stream), "copying");
}

} // namespace foretrain::gpu
