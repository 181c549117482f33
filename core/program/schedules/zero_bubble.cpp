#include "core/program/schedules/zero_bubble.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/program/schedules/all.h"
#include "core/program/schedules/shape.h"

namespace foretrain {
namespace {

/// Schedules of one ZeroBubblePattern.
class ZeroBubble : public Schedule {
public:
  bool splits_backward() const override { return true; }
  bool takes_chunks() const override { return false; }
  bool overlaps_p2p() const override { return true; }
  std::optional<Rejection> legal(const ScheduleShape& shape) const override { return check_shape(*this, shape); }

  std::vector<ScheduleSlot> order(const ScheduleShape& shape, int stage) const override {
    return zero_bubble_order(pattern(shape), shape.micro_batches, stage);
  }
  std::vector<std::vector<ScheduleSlot>> orders(const ScheduleShape& shape) const override {
    const ZeroBubblePattern own = pattern(shape);
    std::vector<std::vector<ScheduleSlot>> list;
    for (int stage = 0; stage < shape.stages; ++stage)
      list.push_back(zero_bubble_order(own, shape.micro_batches, stage));
    return list;
  }
  int peak_in_flight(const ScheduleShape& shape, int stage) const override {
    return zero_bubble_peak(pattern(shape), shape.micro_batches, stage);
  }

protected:
  virtual ZeroBubblePattern pattern(const ScheduleShape& shape) const = 0;
};

/// Section 2: memory of 1F1B's first stage on every stage (p), since early stages, which warm up longer, have their W
/// sooner; bubble (p - 1)(f + i - w).
class ZeroBubbleH1 final : public ZeroBubble {
public:
  std::string_view id() const override { return "zb-h1"; }
  std::string_view summary() const override { return "zero bubble with the memory of 1f1b"; }
  std::string caution(const ScheduleShape& shape) const override { return underfilled(shape, shape.stages); }

protected:
  ZeroBubblePattern pattern(const ScheduleShape& shape) const override { return zero_bubble_h1(shape.stages); }
};

/// Twice that memory (2p - 1); bubble max(0, (p - 1)(f + i - 2w)) inside a stage once m >= 2p - 1.
class ZeroBubbleH2 final : public ZeroBubble {
public:
  std::string_view id() const override { return "zb-h2"; }
  std::string_view summary() const override { return "zero bubble with twice the memory of 1f1b"; }
  std::optional<Rejection> legal_blocking(const ScheduleShape& shape) const override {
    return zero_bubble_blocking(*this, shape.stages);
  }
  std::string caution(const ScheduleShape& shape) const override { return underfilled(shape, 2 * shape.stages - 1); }

protected:
  ZeroBubblePattern pattern(const ScheduleShape& shape) const override { return zero_bubble_h2(shape.stages); }
};

/// Section 3: the scheduler under a memory cap, by the costs of the slots.
class ZeroBubbleCapped final : public ZeroBubble {
public:
  explicit ZeroBubbleCapped(int cap) : cap_(cap) {}
  std::string_view id() const override { return cap_ == 1 ? "zb-1p" : "zb-2p"; }
  std::string_view summary() const override {
    return cap_ == 1 ? "zero bubble by the costs of its slots, within the memory of 1f1b"
                     : "zero bubble by the costs of its slots, within twice the memory of 1f1b";
  }
  std::optional<Rejection> legal_blocking(const ScheduleShape& shape) const override {
    return zero_bubble_blocking(*this, shape.stages);
  }
  std::string caution(const ScheduleShape& shape) const override { return underfilled(shape, cap_ * shape.stages); }
  bool by_cost() const override { return true; }

protected:
  ZeroBubblePattern pattern(const ScheduleShape& shape) const override { return zero_bubble_within(shape, cap_); }

private:
  int cap_;
};

} // namespace

ZeroBubblePattern zero_bubble_h1(int stages) {
  ZeroBubblePattern pattern;
  for (int stage = 0; stage < stages; ++stage) {
    pattern.warm.push_back(stages - stage - 1);
    pattern.lag.push_back(stage);
  }
  return pattern;
}

ZeroBubblePattern zero_bubble_h2(int stages) {
  ZeroBubblePattern pattern = zero_bubble_h1(stages);
  for (auto* list : {&pattern.warm, &pattern.lag})
    for (int& count : *list) count *= 2;
  return pattern;
}

std::vector<ScheduleSlot> zero_bubble_order(const ZeroBubblePattern& pattern, int micro_batches, int stage) {
  const int m = micro_batches;
  const int warm = std::min(pattern.warm[static_cast<std::size_t>(stage)], m);
  const int lag = pattern.lag[static_cast<std::size_t>(stage)];
  std::vector<ScheduleSlot> slots;
  slots.reserve(3 * static_cast<std::size_t>(m));
  for (int j = 0; j < warm; ++j) slots.push_back({Pass::forward, 0, j});
  for (int q = 0; q < m; ++q) {
    if (warm + q < m) slots.push_back({Pass::forward, 0, warm + q});
    slots.push_back({Pass::input, 0, q});
    if (q >= lag) slots.push_back({Pass::weight, 0, q - lag});
  }
  for (int j = std::max(0, m - lag); j < m; ++j) slots.push_back({Pass::weight, 0, j});
  return slots;
}

int zero_bubble_peak(const ZeroBubblePattern& pattern, int micro_batches, int stage) {
  const auto at = static_cast<std::size_t>(stage);
  return std::min(pattern.warm[at] + pattern.lag[at] + 1, micro_batches);
}

std::optional<Rejection> zero_bubble_blocking(const Schedule& schedule, int stages) {
  if (stages == 1) return std::nullopt;
  return Rejection{.rule = fmt::format("{}-blocking", schedule.id()),
                   .reason = fmt::format("{} on {} stages needs transfers beside compute; without overlap it runs on 1 "
                                         "stage alone",
                                         schedule.id(), stages),
                   .needed = 1,
                   .available = static_cast<double>(stages),
                   .nearest = {"overlap.p2p true", "schedule zb-h1"}};
}

std::unique_ptr<const Schedule> make_zero_bubble_capped(int cap) {
  return std::make_unique<ZeroBubbleCapped>(cap);
}
std::unique_ptr<const Schedule> make_zero_bubble_h1() {
  return std::make_unique<ZeroBubbleH1>();
}
std::unique_ptr<const Schedule> make_zero_bubble_h2() {
  return std::make_unique<ZeroBubbleH2>();
}

} // namespace foretrain
