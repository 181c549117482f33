#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicators/device_link.h"
#include "executor/communicators/nccl/api.h"

namespace foretrain {

/// DeviceLink on NCCL: each channel is a communicator that does not block, with a stream of its own. A thread looks
/// after them all: when the library reports an error, or an operation is not done within the time after the device came
/// to where compute waits for it (the host may be a whole step ahead of that), it ends every communicator, so that no
/// stream waits for a peer that is gone.
class NcclLink final : public DeviceLink {
public:
  explicit NcclLink(const DeviceLinkOptions& options);
  ~NcclLink() override;
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::string place() const override;
  void share_device(int rank) override;
  [[nodiscard]] std::string make_id() override;
  [[nodiscard]] int open(const std::string& id, int index, int size) override;
  [[nodiscard]] Started all_reduce(int channel, const Elements& elements, bool maximum) override;
  [[nodiscard]] Started all_gather(int channel, const Elements& share, const Elements& whole) override;
  [[nodiscard]] Started reduce_scatter(int channel, const Elements& whole, const Elements& share) override;
  [[nodiscard]] Started exchange(int channel, const std::vector<Part>& parts) override;
  void start_clock() override;
  [[nodiscard]] std::int64_t issued() const override { return static_cast<std::int64_t>(timed_.size()); }
  [[nodiscard]] std::vector<TransferTime> take_times() override;
  void check() override;

private:
  using Clock = std::chrono::steady_clock;
  friend class NcclTransfer;

  /// Elements of the host's memory and their copy on the device.
  struct Staged {
    void* device = nullptr;
    void* host = nullptr;
    std::size_t bytes = 0;
    bool comes_back = false;
  };
  /// Events are many: they are used again.
  class Events {
  public:
    explicit Events(bool timed) : timed_(timed) {}
    ~Events();
    Events(const Events&) = delete;
    Events& operator=(const Events&) = delete;
    [[nodiscard]] gpu::Event take();
    void give_back(gpu::Event event);

  private:
    bool timed_;
    std::mutex mutex_; ///< operations end in any thread
    std::vector<gpu::Event> free_;
  };
  struct Operation {
    Operation(std::string text, NcclLink& link);
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    std::string what;
    NcclLink& link;
    gpu::Event needed;        ///< recorded on a stream that it waits for
    gpu::Event began;         ///< before it on its channel, once what it needs is there
    gpu::Event done;          ///< behind it on its channel
    gpu::Event reached;       ///< on compute's stream, where that waits for it
    bool waited = false;      ///< `reached` is recorded, or the host waits
    Clock::time_point late{}; ///< when the wait was seen to have begun
    bool on_device = false;   ///< some elements are in the device's memory
    std::vector<std::shared_ptr<const void>> owners;
    std::vector<Staged> staged;
  };
  struct Channel {
    ncclComm_t communicator = nullptr;
    gpu::Stream stream = nullptr;
    std::deque<std::shared_ptr<Operation>> flying; ///< issued, not known to be done
  };
  using Lock = std::unique_lock<std::mutex>;
  using Enqueue = std::function<ncclResult_t(ncclComm_t, gpu::Stream)>;

  [[nodiscard]] void* put(Operation& operation, const Elements& elements, bool goes, bool comes_back);
  [[nodiscard]] Started issue(int channel, std::shared_ptr<Operation> operation, const Enqueue& enqueue);
  void wait(Operation& operation);
  void wait_on_host(Operation& operation);
  void settle(Lock& lock, ncclComm_t communicator, ncclResult_t result, const std::string& what);
  void check_failure() const;
  void watch();
  void look(Channel& channel);
  [[nodiscard]] std::vector<ncclComm_t> give_up(const std::string& why);
  void close(Channel& channel);

  DeviceLinkOptions options_;
  Events plain_{false}; ///< outlive the operations
  Events timing_{true};
  gpu::Stream compute_;
  gpu::Stream copies_;
  mutable std::mutex mutex_; ///< of all below, and of calls of the library
  std::vector<Channel> channels_;
  gpu::Event origin_ = nullptr;                   ///< of the clock
  std::vector<std::shared_ptr<Operation>> timed_; ///< since the clock's start
  std::string failure_;                           ///< empty: none so far
  bool closing_ = false;
  std::condition_variable wake_;
  std::thread watch_;
};

} // namespace foretrain
