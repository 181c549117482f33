#include "executor/communicators/nccl/link.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

#include <unistd.h>

namespace foretrain {
namespace {

constexpr std::chrono::microseconds kPoll{50};        ///< of the thread that waits
constexpr std::chrono::milliseconds kWatch{100};      ///< of the thread that looks after all
constexpr std::chrono::milliseconds kFarewell{2'000}; ///< that peers get to end a communicator together

/// From this version on ranks may share a device by a variable; before, each must pass for a machine of its own.
constexpr int kSharesDevices = 23'003;

ncclDataType_t type_of(ElementType type) {
  switch (type) {
  case ElementType::fp64:
    return ncclFloat64;
  case ElementType::fp32:
    return ncclFloat32;
  case ElementType::bf16:
    return ncclBfloat16;
  case ElementType::fp16:
    return ncclFloat16;
  case ElementType::int64:
    return ncclInt64;
  case ElementType::int8:
    return ncclInt8;
  }
  throw std::runtime_error("an unknown type of elements");
}

std::size_t bytes_of(const Elements& elements) {
  switch (elements.type) {
  case ElementType::fp64:
  case ElementType::int64:
    return elements.count * 8;
  case ElementType::fp32:
    return elements.count * 4;
  case ElementType::bf16:
  case ElementType::fp16:
    return elements.count * 2;
  case ElementType::int8:
    return elements.count;
  }
  throw std::runtime_error("an unknown type of elements");
}

std::string seconds_text(std::chrono::milliseconds time) {
  return std::to_string(time.count() / 1000) + " s";
}

int version_number() {
  int version = 0;
  gpu::check(ncclGetVersion(&version), nullptr, "asking for the version");
  return version;
}

/// Ends communicators at once. That may itself wait for peers on this machine (NCCL's user guide, ncclCommAbort), so it
/// goes on without the caller after a while: the process is about to end.
void abort_all(std::vector<ncclComm_t> communicators) {
  if (communicators.empty()) return;
  std::promise<void> promise;
  const std::future<void> done = promise.get_future();
  std::thread([communicators = std::move(communicators), promise = std::move(promise)]() mutable {
    for (const ncclComm_t communicator : communicators) (void)ncclCommAbort(communicator);
    promise.set_value();
  }).detach();
  (void)done.wait_for(kFarewell);
}

} // namespace

/// What an issued operation leaves to its user.
class NcclTransfer final : public Transfer {
public:
  NcclTransfer(NcclLink& link, std::shared_ptr<NcclLink::Operation> operation)
      : link_(link), operation_(std::move(operation)) {}
  void wait() override {
    if (const auto operation = std::exchange(operation_, nullptr)) link_.wait(*operation);
  }

private:
  NcclLink& link_;
  std::shared_ptr<NcclLink::Operation> operation_;
};

NcclLink::NcclLink(const DeviceLinkOptions& options)
    : options_(options), compute_(static_cast<gpu::Stream>(options.compute)) {
  gpu::use_device(options_.device);
  copies_ = gpu::new_stream();
  origin_ = gpu::new_event(true);
  watch_ = std::thread([this] { watch(); });
}

NcclLink::~NcclLink() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  watch_.join();
  for (Channel& channel : channels_) close(channel);
  timed_.clear();
  gpu::destroy(origin_);
  gpu::destroy(copies_);
}

std::string NcclLink::description() const {
  const int version = version_number();
  return std::string(gpu::kLibrary) + " " + std::to_string(version / 10'000) + "." +
         std::to_string(version / 100 % 100) + "." + std::to_string(version % 100) + ", " +
         gpu::name_of(options_.device);
}

std::string NcclLink::place() const {
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + "/" + gpu::bus_of(options_.device);
}

void NcclLink::share_device(int rank) {
  // Read when the first communicator is made; a user's own setting stands.
  if (version_number() >= kSharesDevices)
    (void)setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  else
    (void)setenv("NCCL_HOSTID", ("foretrain-rank-" + std::to_string(rank)).c_str(), 0);
}

std::string NcclLink::make_id() {
  ncclUniqueId id{};
  gpu::check(ncclGetUniqueId(&id), nullptr, "making an id");
  return {static_cast<const char*>(id.internal), sizeof id.internal};
}

int NcclLink::open(const std::string& text, int index, int size) {
  ncclUniqueId id{};
  if (text.size() != sizeof id.internal) throw std::runtime_error("an id of another version of the library");
  std::memcpy(static_cast<void*>(id.internal), text.data(), text.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0; // a peer that does not come must not hold this one for ever
  Channel channel;
  channel.stream = gpu::new_stream();
  Lock lock(mutex_);
  try {
    check_failure();
    const ncclResult_t result = ncclCommInitRankConfig(&channel.communicator, size, id, index, &config);
    settle(lock, channel.communicator, result, "joining a communicator");
  } catch (const std::exception& error) {
    std::vector<ncclComm_t> ended = give_up(error.what());
    if (channel.communicator) ended.push_back(channel.communicator);
    if (lock.owns_lock()) lock.unlock();
    abort_all(std::move(ended));
    gpu::destroy(channel.stream);
    throw;
  }
  channels_.push_back(std::move(channel));
  return static_cast<int>(channels_.size()) - 1;
}

/// Where the operation finds the elements. Copies go through a stream of their own: in the channel's they would wait
/// for peers.
void* NcclLink::put(Operation& operation, const Elements& elements, bool goes, bool comes_back) {
  operation.owners.push_back(elements.owner);
  if (!elements.on_host) {
    operation.on_device = true;
    return elements.data;
  }
  const std::size_t bytes = bytes_of(elements);
  if (bytes == 0) return nullptr;
  void* device = gpu::allocate(bytes, copies_);
  operation.staged.push_back({device, elements.data, bytes, comes_back});
  if (goes) gpu::copy(device, elements.data, bytes, copies_);
  return device;
}

DeviceLink::Started NcclLink::issue(int number, std::shared_ptr<Operation> operation, const Enqueue& enqueue) {
  Lock lock(mutex_);
  check_failure();
  Channel& channel = channels_.at(static_cast<std::size_t>(number));
  for (const auto& [stream, needed] :
       {std::pair{compute_, operation->on_device}, std::pair{copies_, !operation->staged.empty()}}) {
    if (!needed) continue;
    gpu::record(operation->needed, stream); // a wait is for what the event was recorded behind last
    gpu::wait_for(operation->needed, channel.stream);
  }
  try {
    gpu::record(operation->began, channel.stream);
    settle(lock, channel.communicator, enqueue(channel.communicator, channel.stream), operation->what);
    gpu::record(operation->done, channel.stream);
  } catch (const std::exception& error) {
    std::vector<ncclComm_t> ended = give_up(error.what());
    lock.unlock();
    abort_all(std::move(ended));
    throw;
  }
  channel.flying.push_back(operation);
  timed_.push_back(operation);
  return std::make_unique<NcclTransfer>(*this, std::move(operation));
}

DeviceLink::Started NcclLink::all_reduce(int channel, const Elements& elements, bool maximum) {
  auto operation = std::make_shared<Operation>("all-reduce", *this);
  void* data = put(*operation, elements, true, true);
  return issue(channel, std::move(operation), [&](ncclComm_t communicator, gpu::Stream stream) {
    return ncclAllReduce(data, data, elements.count, type_of(elements.type), maximum ? ncclMax : ncclSum, communicator,
                         stream);
  });
}

DeviceLink::Started NcclLink::all_gather(int channel, const Elements& share, const Elements& whole) {
  auto operation = std::make_shared<Operation>("all-gather", *this);
  const void* from = put(*operation, share, true, false);
  void* to = put(*operation, whole, false, true);
  return issue(channel, std::move(operation), [&](ncclComm_t communicator, gpu::Stream stream) {
    return ncclAllGather(from, to, share.count, type_of(share.type), communicator, stream);
  });
}

DeviceLink::Started NcclLink::reduce_scatter(int channel, const Elements& whole, const Elements& share) {
  auto operation = std::make_shared<Operation>("reduce-scatter", *this);
  const void* from = put(*operation, whole, true, false);
  void* to = put(*operation, share, false, true);
  return issue(channel, std::move(operation), [&](ncclComm_t communicator, gpu::Stream stream) {
    return ncclReduceScatter(from, to, share.count, type_of(share.type), ncclSum, communicator, stream);
  });
}

DeviceLink::Started NcclLink::exchange(int channel, const std::vector<Part>& parts) {
  const char* what = parts.size() > 1 ? "exchange" : parts.front().sends ? "send" : "receive";
  auto operation = std::make_shared<Operation>(what, *this);
  std::vector<void*> places;
  for (const Part& part : parts) places.push_back(put(*operation, part.elements, part.sends, !part.sends));
  return issue(channel, std::move(operation), [&](ncclComm_t communicator, gpu::Stream stream) {
    ncclResult_t result = ncclGroupStart();
    for (std::size_t i = 0; i < parts.size() && (result == ncclSuccess || result == ncclInProgress); ++i) {
      const Part& part = parts[i];
      const std::size_t count = part.elements.count;
      const ncclDataType_t type = type_of(part.elements.type);
      result = part.sends ? ncclSend(places[i], count, type, part.peer, communicator, stream)
                          : ncclRecv(places[i], count, type, part.peer, communicator, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  });
}

/// A communicator that does not block answers "in progress" until it is done. The lock is given up meanwhile.
void NcclLink::settle(Lock& lock, ncclComm_t communicator, ncclResult_t result, const std::string& what) {
  gpu::check(result, communicator, what);
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  while (result == ncclInProgress) {
    gpu::check(ncclCommGetAsyncError(communicator, &result), communicator, what);
    gpu::check(result, communicator, what);
    if (result != ncclInProgress) return;
    if (Clock::now() > deadline)
      throw std::runtime_error(what + ": no answer from a peer within " + seconds_text(options_.timeout));
    lock.unlock();
    std::this_thread::sleep_for(kPoll);
    lock.lock();
    check_failure();
  }
}

void NcclLink::wait(Operation& operation) {
  {
    const Lock lock(mutex_);
    check_failure();
    if (operation.on_device) {
      gpu::record(operation.reached, compute_);
      gpu::wait_for(operation.done, compute_);
    } else {
      operation.late = Clock::now();
    }
    operation.waited = true;
  }
  if (!operation.staged.empty()) wait_on_host(operation);
  // What is freed now is given to work that compute's stream gets later: behind the operation.
  operation.owners.clear();
}

void NcclLink::start_clock() {
  const Lock lock(mutex_);
  check_failure();
  timed_.clear();
  gpu::record(origin_, compute_);
}

std::vector<TransferTime> NcclLink::take_times() {
  const Lock lock(mutex_);
  check_failure();
  std::vector<TransferTime> times;
  for (const auto& operation : timed_) {
    if (!gpu::is_done(operation->done)) throw std::runtime_error(operation->what + ": nothing waited for it");
    times.push_back({gpu::seconds_between(origin_, operation->began), gpu::seconds_between(origin_, operation->done)});
  }
  timed_.clear();
  return times;
}

void NcclLink::check() {
  const Lock lock(mutex_);
  check_failure();
}

void NcclLink::wait_on_host(Operation& operation) {
  for (Lock lock(mutex_);; lock.lock()) {
    check_failure();
    if (gpu::is_done(operation.done)) break;
    lock.unlock();
    std::this_thread::sleep_for(kPoll);
  }
  for (const Staged& part : operation.staged) {
    if (part.comes_back) gpu::copy(part.host, part.device, part.bytes, copies_);
    gpu::release(part.device, copies_);
  }
  gpu::synchronize(copies_);
}

void NcclLink::check_failure() const {
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

void NcclLink::watch() {
  Lock lock(mutex_);
  try {
    gpu::use_device(options_.device);
    while (!wake_.wait_for(lock, kWatch, [this] { return closing_; }))
      for (Channel& channel : channels_)
        if (failure_.empty()) look(channel);
  } catch (const std::exception& error) {
    std::vector<ncclComm_t> ended = give_up(error.what());
    lock.unlock();
    abort_all(std::move(ended));
  }
}

void NcclLink::look(Channel& channel) {
  const std::string what = channel.flying.empty() ? "between operations" : channel.flying.front()->what;
  ncclResult_t state = ncclSuccess;
  gpu::check(ncclCommGetAsyncError(channel.communicator, &state), channel.communicator, what);
  gpu::check(state, channel.communicator, what);
  while (!channel.flying.empty() && gpu::is_done(channel.flying.front()->done)) channel.flying.pop_front();
  for (const auto& operation : channel.flying) {
    if (!operation->waited) continue; // a peer's work before it takes the time that it takes
    const bool began = operation->late != Clock::time_point{};
    if (!began && gpu::is_done(operation->reached)) operation->late = Clock::now();
    if (began && Clock::now() - operation->late > options_.timeout)
      throw std::runtime_error(operation->what + ": not done within " + seconds_text(options_.timeout) +
                               ": a peer is gone, stopped or late");
  }
}

/// From now on every call fails, with the first reason. What is to be ended, once the lock is given up.
std::vector<ncclComm_t> NcclLink::give_up(const std::string& why) {
  if (failure_.empty()) failure_ = why;
  std::vector<ncclComm_t> list;
  for (Channel& channel : channels_)
    if (channel.communicator) list.push_back(std::exchange(channel.communicator, nullptr));
  return list;
}

/// Together with the peers where they come, else alone.
void NcclLink::close(Channel& channel) {
  ncclComm_t communicator = std::exchange(channel.communicator, nullptr);
  if (communicator) {
    ncclResult_t state = ncclCommFinalize(communicator);
    const Clock::time_point deadline = Clock::now() + kFarewell;
    while (state == ncclInProgress && Clock::now() < deadline) {
      std::this_thread::sleep_for(kPoll);
      if (ncclCommGetAsyncError(communicator, &state) != ncclSuccess) state = ncclInternalError;
    }
    if (state == ncclSuccess)
      (void)ncclCommDestroy(communicator);
    else
      abort_all({communicator});
  }
  channel.flying.clear();
  gpu::destroy(channel.stream);
}

} // namespace foretrain
