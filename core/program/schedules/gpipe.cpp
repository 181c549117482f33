#include "core/program/schedules/all.h"
#include "core/program/schedules/shape.h"

namespace foretrain {
namespace {

/// All forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965). Backwards run in the order of the forwards,
/// as PyTorch and Megatron do; the paper reverses them. Bubble (p - 1)(f + b); every micro-batch is stashed.
class Gpipe final : public Schedule {
public:
  std::string_view id() const override { return "gpipe"; }
  std::string_view summary() const override { return "all forwards, then all backwards"; }
  bool splits_backward() const override { return false; }
  bool takes_chunks() const override { return false; }
  bool overlaps_p2p() const override { return true; }
  std::optional<Rejection> legal(const ScheduleShape& shape) const override { return check_shape(*this, shape); }
  std::string caution(const ScheduleShape& shape) const override { return underfilled(shape, shape.stages); }

  std::vector<ScheduleSlot> order(const ScheduleShape& shape, int /*stage*/) const override {
    std::vector<ScheduleSlot> slots;
    slots.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
    for (int j = 0; j < shape.micro_batches; ++j) slots.push_back({Pass::forward, 0, j});
    for (int j = 0; j < shape.micro_batches; ++j) slots.push_back({Pass::backward, 0, j});
    return slots;
  }
  int peak_in_flight(const ScheduleShape& shape, int /*stage*/) const override { return shape.micro_batches; }
};

} // namespace

std::unique_ptr<const Schedule> make_gpipe() {
  return std::make_unique<Gpipe>();
}

} // namespace foretrain
