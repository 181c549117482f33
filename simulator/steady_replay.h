#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "simulator/slots.h"
#include "simulator/steady_order.h"

namespace foretrain {

/// Layouts that share an order, replayed side by side: a processor is then not held up by the steps' waiting for one
/// another.
inline constexpr std::size_t kLanes = 4;
using LaneTimes = std::array<double, kLanes>;

/// Memory that replays reuse. One per thread.
struct SteadyWorkspace {
  struct Cost {
    LaneTimes hold{};
    LaneTimes seconds{};
    LaneTimes latency{};
    std::size_t stage = 0;
  };
  std::vector<Cost> costs; ///< per kind of step
  std::vector<LaneTimes> ends;
  std::vector<LaneTimes> clock;
};

/// How long steps of `micro_batches` take (SlotResult), one per lane; `costs` holds one entry per lane, at most kLanes.
/// Once a round has put everything off by the same time, so will every later one (what is to come depends on
/// differences alone): the rest is multiplied. Durations are rounded to a grid so fine (2^-51 of the whole step) that
/// sums on it are exact: equal to a replay of every micro-batch on that grid, and the same in whatever lanes and
/// company.
[[nodiscard]] LaneTimes steady_seconds(const SteadyOrder& order, int micro_batches,
                                       const std::vector<const SlotCosts*>& costs, SteadyWorkspace& workspace);

/// The grid for a step whose slots, transfers and tails add up to `seconds`.
[[nodiscard]] double time_grid(double seconds);
/// The nearest multiple of `grid`, a power of two.
[[nodiscard]] double on_grid(double seconds, double grid);

} // namespace foretrain
