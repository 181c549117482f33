#include "tests/executor/fake_gpu/fake_gpu.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
std::atomic<int> events_alive{0};
std::atomic<bool> broken{false};

/// A place in a stream that an event was recorded at.
struct Place {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  Clock::time_point when;
  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    when = Clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
  }
};

} // namespace

struct FakeEvent {
  std::mutex mutex;
  std::shared_ptr<Place> place; ///< null: never recorded
  bool timed = false;
  [[nodiscard]] std::shared_ptr<Place> now() {
    const std::lock_guard lock(mutex);
    return place;
  }
};

struct FakeStream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool closing = false;
  std::thread thread{[this] { run(); }};

  void push(std::function<void()> one) {
    const std::lock_guard lock(mutex);
    work.push_back(std::move(one));
    changed.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return closing || !work.empty(); });
      if (work.empty()) return;
      const std::function<void()> one = std::move(work.front());
      work.pop_front();
      lock.unlock();
      one();
      lock.lock();
    }
  }
};

namespace {

struct Arrival {
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t bytes = 0; ///< of `from`
};

/// What the members of a communicator share.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t joined = 0;
  std::size_t arrived = 0;
  long round = 0;
  std::vector<Arrival> arrivals;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;
};
std::mutex meetings_mutex;
std::map<std::string, std::shared_ptr<Meeting>> meetings;
int ids = 0;

} // namespace

struct FakeComm {
  std::shared_ptr<Meeting> meeting;
  int rank = 0;
  std::atomic<bool> aborted{false};

  /// False: it was aborted meanwhile.
  template <class Condition> bool until(std::unique_lock<std::mutex>& lock, Condition&& condition) {
    while (!condition()) {
      if (aborted) return false;
      meeting->changed.wait_for(lock, std::chrono::milliseconds(2));
    }
    return true;
  }
  /// The last one to come does the work of all.
  void meet(const Arrival& mine, const std::function<void(const std::vector<Arrival>&)>& carry_out) {
    std::unique_lock lock(meeting->mutex);
    const long round = meeting->round;
    meeting->arrivals[static_cast<std::size_t>(rank)] = mine;
    if (++meeting->arrived < meeting->arrivals.size()) {
      (void)until(lock, [&] { return meeting->round > round; });
      return;
    }
    carry_out(meeting->arrivals);
    meeting->arrived = 0;
    ++meeting->round;
    meeting->changed.notify_all();
  }
};

namespace {

struct Part {
  bool sends = false;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  FakeComm* communicator = nullptr;
  cudaStream_t stream = nullptr;
};
thread_local int depth = 0;
thread_local std::vector<Part> group;

std::size_t width_of(ncclDataType_t type) {
  return type == ncclFloat64 || type == ncclInt64 ? 8 : type == ncclFloat32 ? 4 : type == ncclInt8 ? 1 : 2;
}

/// All its sends and receives at once; a send ends when it was received.
void carry_out(const std::vector<Part>& parts) {
  FakeComm& c = *parts.front().communicator;
  std::unique_lock lock(c.meeting->mutex);
  for (const Part& part : parts)
    if (part.sends) c.meeting->mail[{c.rank, part.peer}].emplace_back(part.from, part.from + part.bytes);
  c.meeting->changed.notify_all();
  for (const Part& part : parts) {
    if (part.sends) continue;
    auto& letters = c.meeting->mail[{part.peer, c.rank}];
    if (!c.until(lock, [&] { return !letters.empty(); })) return;
    std::copy(letters.front().begin(), letters.front().end(), part.to);
    letters.pop_front();
    c.meeting->changed.notify_all();
  }
  for (const Part& part : parts)
    if (part.sends && !c.until(lock, [&] { return c.meeting->mail[{c.rank, part.peer}].empty(); })) return;
}

ncclResult_t add_part(Part part) {
  (void)ncclGroupStart();
  group.push_back(part);
  return ncclGroupEnd();
}

/// Sums or maxima of doubles: the only ones that tests reduce.
std::vector<double> reduced(const std::vector<Arrival>& all, ncclRedOp_t op) {
  std::vector<double> result(all.front().bytes / sizeof(double));
  for (std::size_t member = 0; member < all.size(); ++member)
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double value = reinterpret_cast<const double*>(all[member].from)[i];
      result[i] = member == 0 ? value : op == ncclMax ? std::max(result[i], value) : result[i] + value;
    }
  return result;
}

} // namespace

const char* cudaGetErrorString(cudaError_t) {
  return "an error of the fake runtime";
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(static_cast<char*>(properties->name), "threads");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int, int) {
  std::strcpy(text, "0");
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new FakeStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(stream->mutex);
    stream->closing = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto place = std::make_shared<Place>();
  stream->push([place] { place->reach(); });
  place->wait();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto place = event->now()) stream->push([place] { place->wait(); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new FakeEvent;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  ++events_alive;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --events_alive;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto place = std::make_shared<Place>();
  {
    const std::lock_guard lock(event->mutex);
    event->place = place;
  }
  stream->push([place] { place->reach(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto place = event->now();
  if (!place) return cudaSuccess;
  const std::lock_guard lock(place->mutex);
  return place->reached ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const auto first = from->now();
  const auto last = to->now();
  if (!first || !last || !from->timed || !to->timed) return cudaErrorInvalidValue;
  const std::scoped_lock lock(first->mutex, last->mutex);
  if (!first->reached || !last->reached) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(last->when - first->when).count();
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  stream->push([memory] { std::free(memory); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  stream->push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the fake library";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 23'003;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(meetings_mutex);
  *id = {};
  const std::string text = std::to_string(ids++);
  std::copy(text.begin(), text.end(), static_cast<char*>(id->internal));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  *communicator = new FakeComm;
  (*communicator)->rank = rank;
  const std::lock_guard lock(meetings_mutex);
  std::shared_ptr<Meeting>& meeting = meetings[static_cast<const char*>(id.internal)];
  if (!meeting) meeting = std::make_shared<Meeting>();
  meeting->arrivals.resize(static_cast<std::size_t>(size));
  ++meeting->joined;
  (*communicator)->meeting = meeting;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* result) {
  const std::lock_guard lock(meetings_mutex);
  const bool all = communicator->meeting->joined >= communicator->meeting->arrivals.size();
  *result = broken ? ncclRemoteError : all ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->aborted = true; // its operations end; streams may still have some, so it stays
  static auto& ended = *new std::vector<ncclComm_t>;
  const std::lock_guard lock(meetings_mutex);
  ended.push_back(communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0 || group.empty()) return ncclSuccess;
  const cudaStream_t stream = group.front().stream;
  stream->push([parts = std::exchange(group, {})] { carry_out(parts); });
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  const Arrival mine{static_cast<const char*>(from), static_cast<char*>(to), count * width_of(type)};
  stream->push([=] {
    communicator->meet(mine, [op](const std::vector<Arrival>& all) {
      const std::vector<double> sum = reduced(all, op);
      for (const Arrival& arrival : all) std::memcpy(arrival.to, sum.data(), arrival.bytes);
    });
  });
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  const Arrival mine{static_cast<const char*>(from), static_cast<char*>(to), count * width_of(type)};
  stream->push([=] {
    communicator->meet(mine, [](const std::vector<Arrival>& all) {
      std::vector<char> whole;
      for (const Arrival& arrival : all) whole.insert(whole.end(), arrival.from, arrival.from + arrival.bytes);
      for (const Arrival& arrival : all) std::copy(whole.begin(), whole.end(), arrival.to);
    });
  });
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t size = communicator->meeting->arrivals.size();
  const Arrival mine{static_cast<const char*>(from), static_cast<char*>(to), count * width_of(type) * size};
  stream->push([=] {
    communicator->meet(mine, [op](const std::vector<Arrival>& all) {
      const std::vector<double> sum = reduced(all, op);
      const std::size_t share = sum.size() / all.size();
      for (std::size_t member = 0; member < all.size(); ++member)
        std::memcpy(all[member].to, sum.data() + member * share, share * sizeof(double));
    });
  });
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add_part({true, static_cast<const char*>(from), nullptr, count * width_of(type), peer, communicator, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add_part({false, nullptr, static_cast<char*>(to), count * width_of(type), peer, communicator, stream});
}

namespace foretrain::fake_gpu {

void launch(cudaStream_t stream, std::function<void()> kernel) {
  stream->push(std::move(kernel));
}
void break_communicators() {
  broken = true;
}
void mend_communicators() {
  broken = false;
}
int live_events() {
  return events_alive;
}

} // namespace foretrain::fake_gpu
