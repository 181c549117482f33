#include <algorithm>

#include <fmt/format.h>

#include "core/program/schedules/all.h"
#include "core/program/schedules/shape.h"

namespace foretrain {
namespace {

/// Handcrafted zero-bubble schedules (Qi et al. 2023, arXiv:2401.10241, section 2): the backward is split into I (input
/// gradients, on the critical path) and W (weight gradients, which fill holes). W of stage i runs `lag` micro-batches
/// after I, so that early stages, which warm up longer, and late stages retain the same amount.
class ZeroBubble : public Schedule {
public:
  bool splits_backward() const override { return true; }
  bool takes_chunks() const override { return false; }
  bool overlaps_p2p() const override { return true; }
  std::optional<Rejection> legal(const ScheduleShape& shape) const override { return check_shape(*this, shape); }

  std::vector<ScheduleSlot> order(const ScheduleShape& shape, int stage) const override {
    const int m = shape.micro_batches;
    const int warm = std::min(warm_up(shape, stage), m);
    const int behind = lag(stage);
    std::vector<ScheduleSlot> slots;
    slots.reserve(3 * static_cast<std::size_t>(m));
    for (int j = 0; j < warm; ++j) slots.push_back({Pass::forward, 0, j});
    for (int q = 0; q < m; ++q) {
      if (warm + q < m) slots.push_back({Pass::forward, 0, warm + q});
      slots.push_back({Pass::input, 0, q});
      if (q >= behind) slots.push_back({Pass::weight, 0, q - behind});
    }
    for (int j = std::max(0, m - behind); j < m; ++j) slots.push_back({Pass::weight, 0, j});
    return slots;
  }
  int peak_in_flight(const ScheduleShape& shape, int stage) const override {
    return std::min(warm_up(shape, stage) + lag(stage) + 1, shape.micro_batches);
  }

protected:
  virtual int warm_up(const ScheduleShape& shape, int stage) const = 0;
  virtual int lag(int stage) const = 0;
};

/// Memory of 1F1B's first stage on every stage (p); bubble (p - 1)(f + i - w).
class ZeroBubbleH1 final : public ZeroBubble {
public:
  std::string_view id() const override { return "zb-h1"; }
  std::string_view summary() const override { return "zero bubble with the memory of 1f1b"; }
  std::string caution(const ScheduleShape& shape) const override { return underfilled(shape, shape.stages); }

protected:
  int warm_up(const ScheduleShape& shape, int stage) const override { return shape.stages - stage - 1; }
  int lag(int stage) const override { return stage; }
};

/// Twice that memory (2p - 1); bubble max(0, (p - 1)(f + i - 2w)) inside a stage once m >= 2p - 1.
class ZeroBubbleH2 final : public ZeroBubble {
public:
  std::string_view id() const override { return "zb-h2"; }
  std::string_view summary() const override { return "zero bubble with twice the memory of 1f1b"; }
  /// Neighbours' warm-ups differ by two: a stage would wait in a send for a receive that comes after its own next one.
  std::optional<Rejection> legal_blocking(const ScheduleShape& shape) const override {
    if (shape.stages == 1) return std::nullopt;
    return Rejection{.rule = "zb-h2-blocking",
                     .reason =
                         fmt::format("zb-h2 on {} stages needs transfers beside compute; without overlap it runs on 1 "
                                     "stage alone",
                                     shape.stages),
                     .needed = 1,
                     .available = static_cast<double>(shape.stages),
                     .nearest = {"overlap.p2p true", "schedule zb-h1"}};
  }
  std::string caution(const ScheduleShape& shape) const override { return underfilled(shape, 2 * shape.stages - 1); }

protected:
  int warm_up(const ScheduleShape& shape, int stage) const override { return 2 * (shape.stages - stage) - 2; }
  int lag(int stage) const override { return 2 * stage; }
};

} // namespace

std::unique_ptr<const Schedule> make_zero_bubble_h1() {
  return std::make_unique<ZeroBubbleH1>();
}
std::unique_ptr<const Schedule> make_zero_bubble_h2() {
  return std::make_unique<ZeroBubbleH2>();
}

} // namespace foretrain
