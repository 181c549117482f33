#include <cstdlib>

#include "executor/communicators/nccl/link.h"

namespace foretrain {
namespace {

int devices(std::string& why) {
  (void)setenv(gpu::kQueuesVariable, gpu::kQueues, 0); // before the driver starts; a user's own setting stands
  int count = 0;
  const gpu::Status status = gpu::device_count(count);
  if (status == gpu::kSuccess && count > 0) return count;
  why = status == gpu::kSuccess ? "the driver sees none" : gpu::text_of(status);
  return 0;
}

std::unique_ptr<DeviceLink> open(const DeviceLinkOptions& options) {
  return std::make_unique<NcclLink>(options);
}

constexpr DeviceLibrary kLibrary{kDeviceInterface, &devices, &open};

} // namespace
} // namespace foretrain

extern "C" const foretrain::DeviceLibrary* foretrain_device_library() {
  return &foretrain::kLibrary;
}
