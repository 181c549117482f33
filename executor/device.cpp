#include "executor/device.h"

#include <chrono>

#include "executor/optimizer.h"

namespace foretrain {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class HostDevice final : public Device {
public:
  [[nodiscard]] std::string description() const override { return "host"; }
  [[nodiscard]] at::Device place() const override { return at::Device(at::kCPU); }
  [[nodiscard]] const kernels::KernelSet& kernels() const override { return kernels::host_kernels(); }
  [[nodiscard]] bool queues() const override { return false; }
  [[nodiscard]] void* queue() const override { return nullptr; }
  [[nodiscard]] std::int64_t chunk() const override { return kOptimizerChunk; }
  void enter() override {}
  void synchronize() override {}

  void start_clock() override {
    marks_.clear();
    start_ = seconds();
  }
  [[nodiscard]] int mark(bool) override {
    marks_.push_back(seconds() - start_);
    return static_cast<int>(marks_.size()) - 1;
  }
  [[nodiscard]] std::vector<double> marks() override { return marks_; }

  [[nodiscard]] at::Tensor host_memory(std::int64_t elements, at::ScalarType type) override {
    return at::empty({elements}, type);
  }
  [[nodiscard]] std::optional<Peaks> take_peaks() override { return std::nullopt; }

private:
  double start_ = 0;
  std::vector<double> marks_;
};

} // namespace

std::unique_ptr<Device> host_device() {
  return std::make_unique<HostDevice>();
}

} // namespace foretrain
