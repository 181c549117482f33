#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include "simulator/slot_order.h"

namespace foretrain {

/// Steps in replay order. What a step needs lies `back` steps before it: the end of the step of another stage, or,
/// where it needs none, that of the step before on its own stage. Before the first step lie the starts of the stages,
/// the last stage's first, and then a zero: what needs the start of a stage looks back to there.
struct SteadySteps {
  std::vector<std::uint32_t> kind; ///< index into the kinds of the order
  std::vector<std::uint32_t> back;
  [[nodiscard]] std::size_t size() const { return kind.size(); }
};

/// A schedule written as what comes before its steady part, one round of that part, and what comes after: the steps of
/// every number of micro-batches from `shape.micro_batches` on, in steps of `per_round`. Without rounds (`rounds` 0)
/// all stands in `before`, for `shape.micro_batches` alone.
struct SteadyOrder {
  ScheduleShape shape;         ///< the shortest
  int per_round = 1;           ///< micro-batches that one round is longer by
  int rounds = 0;              ///< of the shortest
  int window = 1;              ///< rounds that a later step can look back
  std::vector<StepKind> kinds; ///< counts are those of the shortest
  SteadySteps before;          ///< ends with `window` rounds in the order of `round`
  SteadySteps round;
  SteadySteps after;
};

/// Finds the rounds of a schedule. Nothing when it has none that repeat (GPipe), or when `micro_batches` are too few to
/// hold some. Only the remainder of the micro-batches counts: equal for all numbers with the same one.
[[nodiscard]] std::optional<SteadyOrder> make_steady_order(const Schedule& schedule, const ScheduleShape& shape,
                                                           bool blocking, bool remembers = false);

/// The order as it is, without rounds.
[[nodiscard]] SteadyOrder without_rounds(const SlotOrder& order);

/// Orders built once and shared. Thread-safe; references stay valid as long as the table.
class SteadyTable {
public:
  /// With rounds where the shape has some.
  [[nodiscard]] const SteadyOrder& get(const Schedule& schedule, const ScheduleShape& shape, bool blocking,
                                       bool remembers = false);

private:
  using Key = std::tuple<std::string_view, int, int, int, int, SlotWeights, bool,
                         bool>; ///< schedule, stages, chunks, group, micro-batches, weights, blocking, remembers
  using Orders = std::map<Key, std::unique_ptr<const SteadyOrder>>;
  std::shared_mutex mutex_;
  Orders steady_; ///< by the remainder of the micro-batches; null: no rounds
  Orders whole_;
};

} // namespace foretrain
