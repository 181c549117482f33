#include <algorithm>

#include <fmt/format.h>

#include "core/program/schedules/all.h"
#include "core/program/schedules/shape.h"

namespace foretrain {
namespace {

/// PipeDream-Flush (Narayanan et al. 2021, arXiv:2104.04473) as Megatron's
/// forward_backward_pipelining_without_interleaving runs it. Bubble (p - 1)(f + b); stage i stashes at most p - i.
class OneFOneB final : public Schedule {
public:
  std::string_view id() const override { return "1f1b"; }
  std::string_view summary() const override { return "one forward, one backward after a warm-up"; }
  bool splits_backward() const override { return false; }
  bool takes_chunks() const override { return false; }
  bool overlaps_p2p() const override { return false; }
  std::optional<Rejection> legal(const ScheduleShape& shape) const override { return check_shape(*this, shape); }
  std::string caution(const ScheduleShape& shape) const override {
    std::string text = underfilled(shape, shape.stages);
    // pytorch/torchtitan#775
    if (!text.empty())
      text += fmt::format("; PyTorch's 1F1B without the fix pytorch#144702 hangs with {} micro-batches on {} stages",
                          shape.micro_batches, shape.stages);
    return text;
  }

  std::vector<ScheduleSlot> order(const ScheduleShape& shape, int stage) const override {
    const int m = shape.micro_batches;
    const int warm = std::min(shape.stages - stage - 1, m);
    std::vector<ScheduleSlot> slots;
    slots.reserve(2 * static_cast<std::size_t>(m));
    for (int j = 0; j < warm; ++j) slots.push_back({Pass::forward, 0, j});
    for (int q = 0; q < m - warm; ++q) {
      slots.push_back({Pass::forward, 0, warm + q});
      slots.push_back({Pass::backward, 0, q});
    }
    for (int j = m - warm; j < m; ++j) slots.push_back({Pass::backward, 0, j});
    return slots;
  }
  int peak_in_flight(const ScheduleShape& shape, int stage) const override {
    return std::min(shape.stages - stage, shape.micro_batches);
  }
};

} // namespace

std::unique_ptr<const Schedule> make_one_f_one_b() {
  return std::make_unique<OneFOneB>();
}

} // namespace foretrain
