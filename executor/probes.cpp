#include "executor/probes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "executor/run.h"

namespace foretrain {
namespace {

constexpr std::int64_t kSmallest = std::int64_t{1} << 10;
constexpr std::int64_t kLargest = std::int64_t{1} << 24;
constexpr int kStep = 4;                 ///< from size to size
constexpr std::int64_t kWork = 64 << 20; ///< bytes moved per figure, so that each takes a fraction of a second
constexpr int kFewest = 8;
constexpr int kMost = 400;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Mean of many in a row, after one that is not measured.
double time_of(Communicator& communicator, std::int64_t bytes, const std::function<void()>& run) {
  const auto repetitions = std::clamp(static_cast<int>(kWork / std::max<std::int64_t>(bytes, 1)), kFewest, kMost);
  run();
  communicator.barrier(Group::tp);
  const double start = seconds();
  for (int i = 0; i < repetitions; ++i) run();
  return (seconds() - start) / repetitions;
}

} // namespace

Result<void> probe_collectives(Communicator& communicator, const Program& program, int rank,
                               const std::filesystem::path& out) {
  const int size = program.mesh.size(Group::tp);
  const bool writes = program.mesh.members(Group::tp, rank).front() == rank;
  if (size == 1) return {};
  try {
    for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= kStep) {
      const std::int64_t rows = bytes / 4 / size * size;
      at::Tensor whole = at::ones({rows}, at::kFloat);
      at::Tensor share = at::ones({rows / size}, at::kFloat);
      const std::array<std::pair<const char*, std::function<void()>>, 3> kinds = {
          {{"all-reduce", [&] { communicator.all_reduce(Group::tp, whole, Communicator::Reduction::maximum); }},
           {"all-gather", [&] { communicator.all_gather(Group::tp, share, whole); }},
           {"reduce-scatter", [&] { communicator.reduce_scatter(Group::tp, whole, share); }}}};
      for (const auto& [kind, run] : kinds) {
        const double each = time_of(communicator, bytes, run);
        if (!writes) continue;
        if (auto written =
                append_line(out, Json{{"probe", kind}, {"ranks", size}, {"bytes", rows * 4}, {"seconds", each}});
            !written)
          return written;
        share.fill_(1); // sums of sums would overflow in the end
      }
    }
    return {};
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank), std::string("probing collectives: ") + error.what());
  }
}

} // namespace foretrain
