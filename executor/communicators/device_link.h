#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/transfer.h"

/// Collectives between devices on plain memory. A library of its own implements them (foretrain-nccl.so), loaded when
/// it is asked for: the executor is built and runs without CUDA, and the library is built without LibTorch.
namespace foretrain {

enum class ElementType { fp64, fp32, bf16, fp16, int64, int8 };

/// Elements one after another.
struct Elements {
  void* data = nullptr;
  std::size_t count = 0;
  ElementType type = ElementType::fp32;
  bool on_host = false;              ///< in the host's memory: they are copied to the device and back
  std::shared_ptr<const void> owner; ///< held until the operation's wait, so that the memory is not given to others
};

/// A rank's end of its communicators. Used by one thread. Operations of a channel run in the order of their issue,
/// those of different channels beside each other; every member of a channel must issue the same ones in the same order.
/// Every function throws std::runtime_error when a peer failed or did not come within the time; from then on all do.
///
/// An operation starts after the work that compute's stream has got so far. Its Transfer's wait makes compute's stream
/// wait for it, on the device; where elements are in the host's memory it waits on the host.
class DeviceLink {
public:
  virtual ~DeviceLink() = default;

  /// Library with version, device.
  [[nodiscard]] virtual std::string description() const = 0;
  /// The machine and the device on it: equal for ranks that share one.
  [[nodiscard]] virtual std::string place() const = 0;
  /// To be called before the first channel where ranks share a device, with a number that no other rank has.
  virtual void share_device(int rank) = 0;

  /// Names a new channel: one member makes it, the others are told.
  [[nodiscard]] virtual std::string make_id() = 0;
  /// Joins a channel as member `index`; returns its number here when all `size` members have joined.
  [[nodiscard]] virtual int open(const std::string& id, int index, int size) = 0;

  struct Part {
    bool sends = false; ///< else receives
    int peer = 0;       ///< member
    Elements elements;
  };
  using Started = std::unique_ptr<Transfer>;
  /// In place.
  [[nodiscard]] virtual Started all_reduce(int channel, const Elements& elements, bool maximum) = 0;
  /// `whole` gets the members' shares in their order.
  [[nodiscard]] virtual Started all_gather(int channel, const Elements& share, const Elements& whole) = 0;
  /// `share` gets this member's part of the sum.
  [[nodiscard]] virtual Started reduce_scatter(int channel, const Elements& whole, const Elements& share) = 0;
  /// Sends and receives that go at the same time. Between two members the first send meets the first receive, …
  [[nodiscard]] virtual Started exchange(int channel, const std::vector<Part>& parts) = 0;

  /// Starts a clock at the place where compute's stream is now; forgets the operations before.
  virtual void start_clock() = 0;
  /// Operations issued since.
  [[nodiscard]] virtual std::int64_t issued() const = 0;
  /// When each of them ran on its channel, in their order: from where it could begin (its channel and what it needs of
  /// compute were ready; its peers may not have been) to its end. All are done: compute has waited for them, and the
  /// host for compute. Empty: they are not timed.
  [[nodiscard]] virtual std::vector<TransferTime> take_times() = 0;
  /// Throws when a peer failed, also where nothing waits: after it compute's results are nothing.
  virtual void check() = 0;
};

struct DeviceLinkOptions {
  int device = 0;
  void* compute = nullptr; ///< stream of LibTorch's kernels; null: the default one
  std::chrono::milliseconds timeout{60'000};
};

inline constexpr const char* kDeviceInterface = "foretrain device link 2";

/// What the library exports.
struct DeviceLibrary {
  const char* interface = nullptr; ///< kDeviceInterface of its source
  /// Devices that can be used; 0: `why` says what is missing.
  int (*devices)(std::string& why) = nullptr;
  /// Throws std::runtime_error.
  std::unique_ptr<DeviceLink> (*open)(const DeviceLinkOptions& options) = nullptr;
};
inline constexpr const char* kDeviceEntry = "foretrain_device_library";
using DeviceEntry = const DeviceLibrary* (*)();

} // namespace foretrain
