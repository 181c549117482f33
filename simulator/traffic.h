#pragma once

#include "core/base/units.h"
#include "core/program/program.h"
#include "simulator/cost.h"

namespace foretrain {

/// One transfer as the rank machine and its networks see it: undisturbed it lasts wire.latency + wire.seconds; a
/// network only decides what sharing adds.
struct Traffic {
  Wire wire;
  double slowdown = 0; ///< compute on a member takes 1 + slowdown times as long meanwhile
  double beside = 1;   ///< its own rate while a member computes, relative to alone
  [[nodiscard]] double duration() const { return wire.latency + wire.seconds; }
};

/// Where the rank machine gets its durations from. `CostDurations` asks the cost model; tests give numbers.
class Durations {
public:
  virtual ~Durations() = default;
  /// A compute op, host synchronisation or copy.
  [[nodiscard]] virtual double local_seconds(const Op& op) const = 0;
  [[nodiscard]] virtual Traffic collective(const Op& op) const = 0;
  /// Least time of one layer's pass: kernels cannot go faster than the host launches them.
  [[nodiscard]] virtual double layer_floor() const { return 0; }
  /// Seconds between a blocking pipeline transfer and the first kernel after it.
  [[nodiscard]] virtual double restart() const { return 0; }
  /// A pipeline transfer between two ranks whose innermost common tier is `tier`.
  [[nodiscard]] virtual Traffic transfer(Bytes bytes, int tier) const = 0;
};

} // namespace foretrain
