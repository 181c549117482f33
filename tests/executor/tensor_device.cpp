#include "tests/executor/tensor_device.h"

#include <chrono>

namespace foretrain::executor_fixtures {
namespace {

using Clock = std::chrono::steady_clock;

class TensorDevice final : public Device {
public:
  [[nodiscard]] std::string description() const override { return "tensors on the host"; }
  [[nodiscard]] at::Device place() const override { return at::Device(at::kCPU); }
  [[nodiscard]] const kernels::KernelSet& kernels() const override { return kernels::tensor_kernels(); }
  [[nodiscard]] bool queues() const override { return true; }
  [[nodiscard]] void* queue() const override { return nullptr; }
  [[nodiscard]] std::int64_t chunk() const override { return 100; } // parameters of tests end inside one
  void enter() override {}
  void synchronize() override {}
  void start_clock() override {
    marks_ = {0};
    start_ = Clock::now();
  }
  [[nodiscard]] int mark(bool begins) override {
    if (!begins) marks_.push_back(std::chrono::duration<double>(Clock::now() - start_).count());
    return static_cast<int>(marks_.size()) - 1;
  }
  [[nodiscard]] std::vector<double> marks() override { return marks_; }
  [[nodiscard]] at::Tensor host_memory(std::int64_t elements, at::ScalarType type) override {
    return at::empty({elements}, type);
  }
  [[nodiscard]] std::optional<Peaks> take_peaks() override { return std::nullopt; }

private:
  Clock::time_point start_;
  std::vector<double> marks_;
};

} // namespace

std::unique_ptr<Device> tensor_device() {
  return std::make_unique<TensorDevice>();
}

} // namespace foretrain::executor_fixtures
