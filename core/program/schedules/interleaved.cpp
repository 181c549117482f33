#include <algorithm>

#include <fmt/format.h>

#include "core/program/schedules/all.h"
#include "core/program/schedules/shape.h"

namespace foretrain {
namespace {

Rejection reject(const char* rule, std::string reason, int needed, int available, std::vector<std::string> nearest) {
  return Rejection{.rule = rule,
                   .reason = std::move(reason),
                   .needed = static_cast<double>(needed),
                   .available = static_cast<double>(available),
                   .nearest = std::move(nearest)};
}

/// Megatron's interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2). Micro-batches go in groups of N
/// (microbatch_group_size_per_vp_stage, default p); within a group every chunk in turn runs the whole group.
/// Bubble (p - 1)(f + b) / v; stage i stashes min(m v, 2 (p - i - 1) + (v - 1) N + 1) chunks.
class Interleaved final : public Schedule {
public:
  std::string_view id() const override { return "interleaved"; }
  std::string_view summary() const override { return "1f1b with several chunks of the model per stage"; }
  bool splits_backward() const override { return false; }
  bool takes_chunks() const override { return true; }
  bool overlaps_p2p() const override { return true; }

  std::optional<Rejection> legal(const ScheduleShape& shape) const override {
    if (auto rejection = check_shape(*this, shape)) return rejection;
    const int p = shape.stages;
    const int m = shape.micro_batches;
    if (p < 2)
      return reject("interleaved-stages", fmt::format("interleaved needs at least 2 stages, the layout has {}", p), 2,
                    p, {"pp 2", "schedule 1f1b, chunks 1"});
    if (shape.chunks < 2)
      return reject("interleaved-chunks",
                    fmt::format("interleaved needs at least 2 chunks per stage, the layout has {}", shape.chunks), 2,
                    shape.chunks, {"chunks 2", "schedule 1f1b"});
    const int n = shape.turn();
    if (m < p)
      return reject("interleaved-micro-batches",
                    fmt::format("interleaved needs at least as many micro-batches as stages ({}), there are {}", p, m),
                    p, m, {fmt::format("micro-batches {}", p), "schedule 1f1b, chunks 1"});
    if (n < p || n > m)
      return reject(
          "interleaved-group",
          fmt::format("the micro-batch group of {} must lie between the stages ({}) and the micro-batches ({})", n, p,
                      m),
          p, n, {fmt::format("group {}", p), fmt::format("group {}", m)});
    if (const int rest = m % n; rest != 0 && rest < p)
      return reject(
          "interleaved-micro-batches",
          fmt::format("{} micro-batches in groups of {} leave a last group of {}; it must be whole or at least "
                      "the {} stages",
                      m, n, rest, p),
          p, rest, {fmt::format("micro-batches {}", m - rest), fmt::format("micro-batches {}", m - rest + p)});
    return std::nullopt;
  }
  /// In groups of p the steps of all stages are in lock-step, so that one batch of sends and receives serves each step.
  std::optional<Rejection> legal_blocking(const ScheduleShape& shape) const override {
    const int n = shape.turn();
    if (n == shape.stages) return std::nullopt;
    return reject("interleaved-blocking",
                  fmt::format("without overlap of p2p transfers the micro-batch group ({}) must equal the stages ({})",
                              n, shape.stages),
                  shape.stages, n, {fmt::format("group {}", shape.stages), "overlap.p2p true"});
  }
  std::string caution(const ScheduleShape&) const override { return {}; }

  std::vector<ScheduleSlot> order(const ScheduleShape& shape, int stage) const override {
    const int m = shape.micro_batches;
    const int v = shape.chunks;
    const int n = shape.turn();
    const int total = m * v;
    std::vector<ScheduleSlot> table; // the forward order
    table.reserve(static_cast<std::size_t>(total));
    for (int first = 0; first < m; first += n)
      for (int chunk = 0; chunk < v; ++chunk)
        for (int j = first; j < std::min(first + n, m); ++j) table.push_back({Pass::forward, chunk, j});
    const int warm = warm_up(shape, stage);
    std::vector<ScheduleSlot> slots;
    slots.reserve(2 * table.size());
    const auto backward = [&](int k) {
      const ScheduleSlot& entry = table[static_cast<std::size_t>(k)];
      slots.push_back({Pass::backward, v - 1 - entry.chunk, entry.micro_batch});
    };
    slots.insert(slots.end(), table.begin(), table.begin() + warm);
    for (int k = 0; k < total - warm; ++k) {
      slots.push_back(table[static_cast<std::size_t>(warm + k)]);
      backward(k);
    }
    for (int k = total - warm; k < total; ++k) backward(k);
    return slots;
  }
  int peak_in_flight(const ScheduleShape& shape, int stage) const override {
    return std::min(warm_up(shape, stage) + 1, shape.micro_batches * shape.chunks);
  }

private:
  static int warm_up(const ScheduleShape& shape, int stage) {
    return std::min(2 * (shape.stages - stage - 1) + (shape.chunks - 1) * shape.turn(),
                    shape.micro_batches * shape.chunks);
  }
};

} // namespace

std::unique_ptr<const Schedule> make_interleaved() {
  return std::make_unique<Interleaved>();
}

} // namespace foretrain
