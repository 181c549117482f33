#include <cstdio>
#include <stdexcept>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "executor/allocator.h"
#include "executor/device.h"

/// The one source of the executor that knows CUDA; compiled where LibTorch has it.
namespace foretrain {
namespace {

/// Of parameters and gradients: launches are few against what one of them moves (a step of AdamW moves 28 bytes an
/// element), and temporaries are 16 MiB each in single precision.
constexpr std::int64_t kChunk = std::int64_t{1} << 22;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// Events with times, used again step after step.
class Marks {
public:
  ~Marks() {
    for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  }
  Marks() = default;
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  void restart() { used_ = 0; }
  [[nodiscard]] std::size_t used() const { return used_; }
  void note(cudaStream_t stream) {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      check(cudaEventCreateWithFlags(&event, cudaEventDefault), "making an event");
      events_.push_back(event);
    }
    check(cudaEventRecord(events_[used_++], stream), "recording an event");
  }
  /// Seconds from the first one to each. Waits for the last: all are of one stream.
  [[nodiscard]] std::vector<double> seconds() const {
    std::vector<double> list;
    if (used_ == 0) return list;
    check(cudaEventSynchronize(events_[used_ - 1]), "waiting for the device");
    for (std::size_t i = 0; i < used_; ++i) {
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, events_.front(), events_[i]), "reading a time");
      list.push_back(static_cast<double>(milliseconds) * 1e-3);
    }
    return list;
  }

private:
  std::vector<cudaEvent_t> events_;
  std::size_t used_ = 0;
};

class GpuDevice final : public Device {
public:
  /// Kernels have a stream of their own: the default one waits for streams that others made.
  explicit GpuDevice(c10::DeviceIndex index) : index_(index), stream_(c10::cuda::getStreamFromPool(false, index)) {}

  [[nodiscard]] std::string description() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index_), "asking what a device is");
    char text[64] = {};
    (void)std::snprintf(static_cast<char*>(text), sizeof text, ", %.1f GiB",
                        static_cast<double>(properties.totalGlobalMem) / (1 << 30));
    return static_cast<const char*>(properties.name) + std::string(static_cast<const char*>(text));
  }
  [[nodiscard]] at::Device place() const override { return {at::kCUDA, index_}; }
  [[nodiscard]] const kernels::KernelSet& kernels() const override { return kernels::tensor_kernels(); }
  [[nodiscard]] bool queues() const override { return true; }
  [[nodiscard]] void* queue() const override { return stream_.stream(); }
  [[nodiscard]] std::int64_t chunk() const override { return kChunk; }

  void enter() override {
    c10::cuda::set_device(index_);
    c10::cuda::setCurrentCUDAStream(stream_);
  }
  void synchronize() override { check(cudaStreamSynchronize(stream_.stream()), "waiting for the device"); }

  void start_clock() override {
    marks_.restart();
    marks_.note(stream_.stream());
  }
  /// One event between two ops: where one ends the next one begins, and an event takes the host a microsecond.
  [[nodiscard]] int mark(bool begins) override {
    if (!begins) marks_.note(stream_.stream());
    return static_cast<int>(marks_.used()) - 1;
  }
  [[nodiscard]] std::vector<double> marks() override { return marks_.seconds(); }

  /// Exactly as many bytes: LibTorch's own allocator of pinned memory rounds up to a power of two.
  [[nodiscard]] at::Tensor host_memory(std::int64_t elements, at::ScalarType type) override {
    const std::int64_t bytes = elements * static_cast<std::int64_t>(at::elementSize(type));
    if (bytes == 0) return at::empty({0}, type);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocDefault), "taking pinned memory");
    const std::shared_ptr<const void> booked = book(bytes);
    return at::from_blob(
        memory, {elements}, [booked](void* pointer) { (void)cudaFreeHost(pointer); }, at::TensorOptions(type));
  }

  [[nodiscard]] std::optional<Peaks> take_peaks() override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_);
    c10::cuda::CUDACachingAllocator::resetPeakStats(index_);
    return Peaks{stats.allocated_bytes[0].peak, stats.reserved_bytes[0].peak}; // of both pools together
  }

private:
  c10::DeviceIndex index_;
  c10::cuda::CUDAStream stream_;
  Marks marks_;
};

} // namespace

Result<std::unique_ptr<Device>> gpu_device(int index) {
  try {
    const int count = c10::cuda::device_count_ensure_non_zero();
    const auto chosen = static_cast<c10::DeviceIndex>(index % count);
    (void)at::empty({1}, at::TensorOptions(at::kByte).device(at::kCUDA, chosen)); // starts LibTorch's part of CUDA
    return std::make_unique<GpuDevice>(chosen);
  } catch (const std::exception& error) {
    const std::string text = error.what(); // LibTorch's messages go on with where in its source
    return fail_environment("device", "there is no GPU that can be used: " + text.substr(0, text.find('\n')),
                            "it needs one with its driver");
  }
}

} // namespace foretrain
