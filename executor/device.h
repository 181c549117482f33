#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/base/result.h"
#include "executor/kernels/kernel_set.h"

namespace foretrain {

/// Where a rank computes: what memory its tensors are in, what runs its kernels, and how their time is taken. Used by
/// the rank's thread alone.
///
/// A device that queues runs an op some time after it was issued. A number that it computes is read where the Program
/// has the host wait (counts of rows) or after the step, and nowhere else.
class Device {
public:
  virtual ~Device() = default;

  /// For people: kind and memory.
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual at::Device place() const = 0;
  [[nodiscard]] virtual const kernels::KernelSet& kernels() const = 0;
  [[nodiscard]] virtual bool queues() const = 0;
  /// The queue's handle, for those that order work behind it; null: there is none.
  [[nodiscard]] virtual void* queue() const = 0;
  /// Elements that loops over parameters (optimizer, norm of gradients) take at once.
  [[nodiscard]] virtual std::int64_t chunk() const = 0;
  /// Makes it the calling thread's own, before anything else.
  virtual void enter() = 0;
  /// Waits until all that was issued is done. Throws when the device failed.
  virtual void synchronize() = 0;

  /// Starts a clock: what `mark` notes counts from here. Places of the clock before are forgotten.
  virtual void start_clock() = 0;
  /// Notes this place in the order of the work; its number since the clock was started. `begins`: work begins here, so
  /// that a device may answer with the place where the work before it ended.
  [[nodiscard]] virtual int mark(bool begins) = 0;
  /// Seconds from the clock's start to each place, when the device reached it. Waits until it has reached all.
  [[nodiscard]] virtual std::vector<double> marks() = 0;

  /// Memory of the host that lives as long as its tensor and that the device can copy from and to. Booked on the
  /// thread's account (allocator.h).
  [[nodiscard]] virtual at::Tensor host_memory(std::int64_t elements, at::ScalarType type) = 0;

  /// Highest bytes since the last call.
  struct Peaks {
    std::int64_t allocated = 0; ///< of blocks that tensors have, each rounded up by the allocator
    std::int64_t reserved = 0;  ///< of what the allocator has from the driver
  };
  /// Empty: the device has no memory of its own, the host's allocator counts (allocator.h).
  [[nodiscard]] virtual std::optional<Peaks> take_peaks() = 0;
};

/// The host's processor and memory.
[[nodiscard]] std::unique_ptr<Device> host_device();

/// A GPU through LibTorch. `index`: among those that this process sees, modulo their number. Errors: this LibTorch
/// computes on the processor alone; there is no driver or no device.
[[nodiscard]] Result<std::unique_ptr<Device>> gpu_device(int index);

} // namespace foretrain
