#include "tests/executor/queues.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace foretrain::executor_fixtures {
namespace {

constexpr std::chrono::seconds kStuck{30};

std::size_t width_of(ElementType type) {
  switch (type) {
  case ElementType::fp64:
  case ElementType::int64:
    return 8;
  case ElementType::fp32:
    return 4;
  case ElementType::bf16:
  case ElementType::fp16:
    return 2;
  case ElementType::int8:
    return 1;
  }
  throw std::runtime_error("an unknown type of elements");
}

/// What members of a channel bring to an operation that all take part in.
struct Arrival {
  std::string what;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t count = 0; ///< of `from`
  ElementType type = ElementType::fp32;
};

struct Letter {
  const void* data = nullptr;
  std::size_t count = 0;
  ElementType type = ElementType::fp32;
  bool taken = false;
};

template <class T> void add_into(const std::vector<Arrival>& all, std::vector<char>& sum, bool maximum) {
  T* total = reinterpret_cast<T*>(sum.data());
  for (std::size_t member = 0; member < all.size(); ++member)
    for (std::size_t i = 0; i < all[member].count; ++i) {
      const T value = reinterpret_cast<const T*>(all[member].from)[i];
      total[i] = member == 0 ? value : maximum ? std::max(total[i], value) : static_cast<T>(total[i] + value);
    }
}

std::vector<char> reduced(const std::vector<Arrival>& all, bool maximum) {
  std::vector<char> sum(all.front().count * width_of(all.front().type));
  if (all.front().type == ElementType::fp64)
    add_into<double>(all, sum, maximum);
  else if (all.front().type == ElementType::fp32)
    add_into<float>(all, sum, maximum);
  else
    throw std::runtime_error("the test's queues add single and double precision");
  return sum;
}

/// The last member to arrive does the work of all.
void carry_out(const std::vector<Arrival>& all) {
  const Arrival& first = all.front();
  for (const Arrival& arrival : all)
    if (arrival.what != first.what || arrival.count != first.count || arrival.type != first.type)
      throw std::runtime_error("members issued different operations: " + first.what + ", " + arrival.what);
  const std::size_t bytes = first.count * width_of(first.type);
  if (first.what == "all-gather") {
    std::vector<char> whole;
    for (const Arrival& arrival : all) whole.insert(whole.end(), arrival.from, arrival.from + bytes);
    for (const Arrival& arrival : all) std::copy(whole.begin(), whole.end(), arrival.to);
    return;
  }
  const std::vector<char> sum = reduced(all, first.what == "maximum");
  const std::size_t share = bytes / all.size();
  for (std::size_t member = 0; member < all.size(); ++member) {
    const bool part = first.what == "reduce-scatter";
    const char* from = sum.data() + (part ? member * share : 0);
    std::copy(from, from + (part ? share : bytes), all[member].to);
  }
}

/// A channel as its members share it.
class Channel {
public:
  explicit Channel(int size) : arrivals_(static_cast<std::size_t>(size)) {}

  void join() {
    std::unique_lock lock(mutex_);
    ++joined_;
    changed_.notify_all();
    until(lock, [this] { return joined_ >= arrivals_.size(); });
  }
  void meet(std::size_t index, Arrival arrival) {
    std::unique_lock lock(mutex_);
    const std::int64_t round = round_;
    arrivals_[index] = std::move(arrival);
    if (++arrived_ < arrivals_.size()) return until(lock, [this, round] { return round_ > round; });
    carry_out(arrivals_);
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  }
  void exchange(int index, const std::vector<DeviceLink::Part>& parts) {
    std::unique_lock lock(mutex_);
    std::vector<std::shared_ptr<Letter>> sent;
    for (const DeviceLink::Part& part : parts) {
      if (!part.sends) continue;
      const Elements& e = part.elements;
      sent.push_back(std::make_shared<Letter>(Letter{e.data, e.count, e.type, false}));
      mail_[{index, part.peer}].push_back(sent.back());
    }
    changed_.notify_all();
    for (const DeviceLink::Part& part : parts) {
      if (part.sends) continue;
      auto& letters = mail_[{part.peer, index}];
      until(lock, [&letters] { return !letters.empty(); });
      Letter& letter = *letters.front();
      if (letter.count != part.elements.count || letter.type != part.elements.type)
        throw std::runtime_error("a send met another receive");
      std::memcpy(part.elements.data, letter.data, letter.count * width_of(letter.type));
      letter.taken = true;
      letters.pop_front();
      changed_.notify_all();
    }
    until(lock, [&sent] { return std::all_of(sent.begin(), sent.end(), [](const auto& one) { return one->taken; }); });
  }

private:
  template <class Condition> void until(std::unique_lock<std::mutex>& lock, Condition&& condition) {
    if (!changed_.wait_for(lock, kStuck, condition))
      throw std::runtime_error("a queue waits for a peer that never comes");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t joined_ = 0;
  std::size_t arrived_ = 0;
  std::int64_t round_ = 0;
  std::vector<Arrival> arrivals_;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Letter>>> mail_;
};

/// One rank's end of a channel: its stream.
class Queue {
public:
  struct Task {
    std::function<void()> run;
    bool done = false;
    std::string error;
  };

  Queue(std::shared_ptr<Channel> channel, int index)
      : channel_(std::move(channel)), index_(index), thread_([this] { work(); }) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  [[nodiscard]] Channel& channel() { return *channel_; }
  [[nodiscard]] int index() const { return index_; }

  std::shared_ptr<Task> push(std::function<void()> run) {
    auto task = std::make_shared<Task>();
    task->run = std::move(run);
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
    changed_.notify_all();
    return task;
  }
  void wait(const Task& task) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kStuck, [&task] { return task.done; }))
      throw std::runtime_error("an operation is never done: the queues hold each other up");
    if (!task.error.empty()) throw std::runtime_error(task.error);
  }

private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::shared_ptr<Task> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      std::string error;
      try {
        task->run();
      } catch (const std::exception& caught) {
        error = caught.what();
      }
      task->run = {}; // what it held
      lock.lock();
      task->error = error;
      task->done = true;
      changed_.notify_all();
    }
  }

  std::shared_ptr<Channel> channel_;
  int index_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  bool closing_ = false;
  std::thread thread_;
};

class QueueTransfer final : public Transfer {
public:
  QueueTransfer(Queue& queue, std::shared_ptr<Queue::Task> task) : queue_(queue), task_(std::move(task)) {}
  void wait() override { queue_.wait(*task_); }

private:
  Queue& queue_;
  std::shared_ptr<Queue::Task> task_;
};

} // namespace

struct QueueFabric::State {
  std::mutex mutex;
  int ids = 0;
  int links = 0;
  std::map<std::string, std::shared_ptr<Channel>> channels;
};

class QueueLink final : public DeviceLink {
public:
  explicit QueueLink(std::shared_ptr<QueueFabric::State> state) : state_(std::move(state)) {
    const std::lock_guard lock(state_->mutex);
    place_ = "queue/" + std::to_string(state_->links++);
  }

  [[nodiscard]] std::string description() const override { return "queues of threads"; }
  [[nodiscard]] std::string place() const override { return place_; }
  void share_device(int) override { throw std::runtime_error("each rank has queues of its own"); }
  [[nodiscard]] std::string make_id() override {
    const std::lock_guard lock(state_->mutex);
    return "channel " + std::to_string(state_->ids++);
  }
  [[nodiscard]] int open(const std::string& id, int index, int size) override {
    std::shared_ptr<Channel> channel;
    {
      const std::lock_guard lock(state_->mutex);
      std::shared_ptr<Channel>& there = state_->channels[id];
      if (!there) there = std::make_shared<Channel>(size);
      channel = there;
    }
    channel->join();
    queues_.push_back(std::make_unique<Queue>(std::move(channel), index));
    return static_cast<int>(queues_.size()) - 1;
  }
  [[nodiscard]] Started all_reduce(int channel, const Elements& e, bool maximum) override {
    return meet(channel, {maximum ? "maximum" : "sum", as_bytes(e), as_bytes(e), e.count, e.type}, {e.owner});
  }
  [[nodiscard]] Started all_gather(int channel, const Elements& share, const Elements& whole) override {
    return meet(channel, {"all-gather", as_bytes(share), as_bytes(whole), share.count, share.type},
                {share.owner, whole.owner});
  }
  [[nodiscard]] Started reduce_scatter(int channel, const Elements& whole, const Elements& share) override {
    return meet(channel, {"reduce-scatter", as_bytes(whole), as_bytes(share), whole.count, whole.type},
                {share.owner, whole.owner});
  }
  [[nodiscard]] Started exchange(int channel, const std::vector<Part>& parts) override {
    Queue& queue = *queues_.at(static_cast<std::size_t>(channel));
    return started(queue, [&queue, parts] { queue.channel().exchange(queue.index(), parts); });
  }

  void start_clock() override { issued_ = 0; }
  [[nodiscard]] std::int64_t issued() const override { return issued_; }
  [[nodiscard]] std::vector<TransferTime> take_times() override { return {}; }
  void check() override {}

private:
  static char* as_bytes(const Elements& e) { return static_cast<char*>(e.data); }
  Started meet(int channel, Arrival arrival, std::vector<std::shared_ptr<const void>> owners) {
    Queue& queue = *queues_.at(static_cast<std::size_t>(channel));
    return started(queue, [&queue, arrival = std::move(arrival), owners = std::move(owners)] {
      queue.channel().meet(static_cast<std::size_t>(queue.index()), arrival);
    });
  }
  Started started(Queue& queue, std::function<void()> run) {
    ++issued_;
    return std::make_unique<QueueTransfer>(queue, queue.push(std::move(run)));
  }

  std::shared_ptr<QueueFabric::State> state_;
  std::string place_;
  std::int64_t issued_ = 0;
  std::vector<std::unique_ptr<Queue>> queues_;
};

QueueFabric::QueueFabric() : state_(std::make_shared<State>()) {}
QueueFabric::~QueueFabric() = default;
std::unique_ptr<DeviceLink> QueueFabric::link() {
  return std::make_unique<QueueLink>(state_);
}

} // namespace foretrain::executor_fixtures
