#include "executor/device.h"

/// In place of gpu_device.cpp where LibTorch has no CUDA.
namespace foretrain {

Result<std::unique_ptr<Device>> gpu_device(int) {
  return fail_environment("device", "this LibTorch was built without CUDA: it computes on the processor alone",
                          "build with the LibTorch of the torch wheel (-DTorch_DIR=…), or --backend gloo");
}

} // namespace foretrain
