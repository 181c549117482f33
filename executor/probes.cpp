#include "executor/probes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "executor/run.h"

namespace foretrain {
namespace {

constexpr std::int64_t kSmallest = std::int64_t{1} << 10;
constexpr std::int64_t kLargest = std::int64_t{1} << 24;
constexpr int kStep = 4;                 ///< from size to size
constexpr std::int64_t kWork = 64 << 20; ///< bytes moved per figure, so that each takes a fraction of a second
constexpr int kFewest = 8;
constexpr int kMost = 400;
constexpr int kMostBetween = 60;
constexpr std::int64_t kProduct = 256;                    ///< rows and columns of what is computed between
constexpr std::int64_t kStreamed = std::int64_t{1} << 21; ///< numbers that push others out of the core's caches

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int repetitions_of(std::int64_t bytes) {
  return std::clamp(static_cast<int>(kWork / std::max<std::int64_t>(bytes, 1)), kFewest, kMost);
}

/// Mean of many in a row, after one that is not measured.
double time_of(Device& device, std::int64_t bytes, const std::function<void()>& run,
               const std::function<void()>& meet) {
  const int repetitions = repetitions_of(bytes);
  run();
  device.synchronize();
  meet();
  const double start = seconds();
  for (int i = 0; i < repetitions; ++i) run();
  device.synchronize();
  return (seconds() - start) / repetitions;
}

/// What a rank does between two collectives: it computes, and what they move is not in the core's caches afterwards.
class Between {
public:
  void operator()() {
    at::mm_out(product_, left_, right_);
    streamed_.add_(1);
  }

private:
  at::Tensor left_ = at::ones({kProduct, kProduct}, at::kFloat);
  at::Tensor right_ = at::ones({kProduct, kProduct}, at::kFloat);
  at::Tensor product_ = at::empty({kProduct, kProduct}, at::kFloat);
  at::Tensor streamed_ = at::zeros({kStreamed}, at::kFloat);
};

/// As processors meet it in a step: all ranks come from compute, at the same time. Mean of many without the slowest and
/// the fastest tenth.
double time_after_compute(std::int64_t bytes, const std::function<void()>& run, const std::function<void()>& meet) {
  Between between;
  std::vector<double> times;
  const int repetitions = std::min(repetitions_of(bytes), kMostBetween);
  for (int i = 0; i <= repetitions; ++i) { // the first is not measured
    between();
    meet();
    const double start = seconds();
    run();
    if (i > 0) times.push_back(seconds() - start);
  }
  std::sort(times.begin(), times.end());
  const auto cut = static_cast<std::ptrdiff_t>(times.size() / 10);
  const double sum = std::accumulate(times.begin() + cut, times.end() - cut, 0.0);
  return sum / static_cast<double>(static_cast<std::ptrdiff_t>(times.size()) - 2 * cut);
}

/// Each member sends the others their part, as the executor's exchanges do.
void exchange(Communicator& communicator, int size, int me, const at::Tensor& from, at::Tensor& to) {
  const std::int64_t part = from.size(0) / size;
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == me) continue;
    at::Tensor there = to.narrow(0, peer * part, part);
    transfers.push_back(communicator.start_receive(Group::tp, peer, there, 0));
  }
  for (int peer = 0; peer < size; ++peer)
    if (peer != me) transfers.push_back(communicator.start_send(Group::tp, peer, from.narrow(0, peer * part, part), 0));
  to.narrow(0, me * part, part).copy_(from.narrow(0, me * part, part));
  for (const auto& transfer : transfers) transfer->wait();
}

Json line_of(const std::string& kind, int ranks, std::int64_t bytes, double each) {
  return Json{{"probe", kind}, {"ranks", ranks}, {"bytes", bytes}, {"seconds", each}};
}

Result<void> probe_collectives(Device& device, Communicator& communicator, int size, int me,
                               const std::filesystem::path& out) {
  for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= kStep) {
    const std::int64_t rows = bytes / 4 / size * size;
    const auto floats = at::TensorOptions(at::kFloat).device(device.place());
    at::Tensor whole = at::ones({rows}, floats);
    at::Tensor share = at::ones({rows / size}, floats);
    at::Tensor other = at::ones({rows}, floats);
    const std::array<std::pair<const char*, std::function<void()>>, 4> kinds = {
        {{"all-reduce", [&] { communicator.all_reduce(Group::tp, whole, Communicator::Reduction::maximum); }},
         {"all-gather", [&] { communicator.all_gather(Group::tp, share, whole); }},
         {"reduce-scatter", [&] { communicator.reduce_scatter(Group::tp, whole, share); }},
         {"all-to-all", [&] { exchange(communicator, size, me, whole, other); }}}};
    for (const auto& [kind, run] : kinds) {
      const auto meet = [&] { communicator.barrier(Group::tp); };
      const double each = device.queues() ? time_of(device, bytes, run, meet) : time_after_compute(bytes, run, meet);
      communicator.check();
      if (me > 0) continue;
      if (auto written = append_line(out, line_of(kind, size, rows * 4, each)); !written) return written;
      share.fill_(1); // sums of sums would overflow in the end
    }
  }
  return {};
}

/// What an op costs that does nothing, and copies over sizes.
Result<void> probe_device(Device& device, const std::filesystem::path& out) {
  const auto floats = at::TensorOptions(at::kFloat).device(device.place());
  at::Tensor one = at::ones({1}, floats);
  const auto nothing = [] {};
  const double launch = time_of(
      device, 0, [&] { one.fill_(1); }, nothing);
  if (auto written = append_line(out, line_of("launch", 1, 0, launch)); !written) return written;
  for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= kStep) {
    const at::Tensor host = device.host_memory(bytes / 4, at::kFloat).fill_(1);
    const at::Tensor here = at::ones({bytes / 4}, floats);
    const at::Tensor there = at::empty_like(here);
    const std::array<std::pair<const char*, std::function<void()>>, 3> kinds = {
        {{"copy-to-device", [&] { here.copy_(host, /*non_blocking=*/true); }},
         {"copy-to-host", [&] { host.copy_(here, /*non_blocking=*/true); }},
         {"copy-on-device", [&] { there.copy_(here); }}}};
    for (const auto& [kind, run] : kinds)
      if (auto written = append_line(out, line_of(kind, 1, bytes, time_of(device, bytes, run, nothing))); !written)
        return written;
  }
  return {};
}

} // namespace

Result<void> probe(Device& device, Communicator& communicator, const Program& program, int rank,
                   const std::filesystem::path& out) {
  const int size = program.mesh.size(Group::tp);
  try {
    if (device.queues() && rank == 0)
      if (auto probed = probe_device(device, out); !probed) return probed;
    if (size == 1) return {};
    const std::vector<int> members = program.mesh.members(Group::tp, rank);
    const auto me = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    return probe_collectives(device, communicator, size, me, out);
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank), std::string("probing: ") + error.what());
  }
}

} // namespace foretrain
