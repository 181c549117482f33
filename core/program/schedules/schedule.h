#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/catalogue.h"
#include "core/program/pass.h"
#include "core/spec/prediction.h"

namespace foretrain {

/// One pass of a model chunk for one micro-batch on a stage. `chunk` is the chunk of the stage: chunk c of stage i is
/// depth c * stages + i of the model.
struct ScheduleSlot {
  Pass pass = Pass::forward; ///< forward, backward, input or weight
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const ScheduleSlot&) const = default;
};

/// Relative costs of a stage's slots, of which schedules by cost make their order. Whole numbers, so that equal ones
/// give equal orders. Worked out by `slot_weights` (core/program/slot_weights.h).
struct SlotWeights {
  static constexpr int kWhole = 16;
  int forward = kWhole;
  int input = kWhole;
  int weight = kWhole;
  int kept = kWhole; ///< of what a micro-batch retains from F on, what it still does from I until W
  auto operator<=>(const SlotWeights&) const = default;
};

struct ScheduleShape {
  int stages = 1;
  int chunks = 1; ///< model chunks per stage
  int micro_batches = 1;
  int group = 0; ///< interleaved: micro-batches a chunk runs before the next one takes over; 0 = stages
  SlotWeights weights = {};
  bool operator==(const ScheduleShape&) const = default;
  /// Micro-batches of a chunk in a row.
  [[nodiscard]] int turn() const { return group == 0 ? stages : group; }
};

/// Largest stages * chunks * micro_batches that a schedule accepts: beyond it the order alone takes hundreds of
/// megabytes.
inline constexpr long long kScheduleLimit = 1LL << 20;

/// See `Schedule::by_cost`.
inline constexpr int kSettledRounds = 6;

/// The order in which each stage runs its slots. Slots of a stage run in this order, each as soon as its inputs are
/// there:
/// - F(depth, j) needs F(depth - 1, j);
/// - B or I(depth, j) needs B or I(depth + 1, j), at the last depth its own F(depth, j);
/// - W(depth, j) needs I(depth, j).
class Schedule {
public:
  virtual ~Schedule() = default;
  [[nodiscard]] virtual std::string_view id() const = 0;
  [[nodiscard]] virtual std::string_view summary() const = 0;
  /// Backward is two slots, input (I) and weight (W), instead of one.
  [[nodiscard]] virtual bool splits_backward() const = 0;
  /// More than one chunk per stage is allowed.
  [[nodiscard]] virtual bool takes_chunks() const = 0;
  /// Transfers between stages may run beside compute. When false, compute of both ends waits for each transfer:
  /// Megatron's schedule without interleaving sends and receives in batches and rejects overlap_p2p_comm.
  [[nodiscard]] virtual bool overlaps_p2p() const = 0;
  /// Why this shape cannot run; nothing when it can. The functions below may only be called for a legal shape.
  [[nodiscard]] virtual std::optional<Rejection> legal(const ScheduleShape& shape) const = 0;
  /// Why this legal shape cannot run when compute of both ends waits for each transfer (overlap off): a circular wait.
  [[nodiscard]] virtual std::optional<Rejection> legal_blocking(const ScheduleShape& /*shape*/) const { return {}; }
  /// A remark on a legal shape that runs badly or only in some frameworks; empty when there is none.
  [[nodiscard]] virtual std::string caution(const ScheduleShape& shape) const = 0;
  [[nodiscard]] virtual std::vector<ScheduleSlot> order(const ScheduleShape& shape, int stage) const = 0;
  /// The orders of all stages at once.
  [[nodiscard]] virtual std::vector<std::vector<ScheduleSlot>> orders(const ScheduleShape& shape) const;
  /// The order follows `ScheduleShape::weights`, and from kSettledRounds micro-batches per stage on these alone: longer
  /// steps then go on as shorter ones do.
  [[nodiscard]] virtual bool by_cost() const { return false; }
  /// Most (chunk, micro-batch) pairs whose activations the stage holds at once: from F until B, or until W when the
  /// backward is split.
  [[nodiscard]] virtual int peak_in_flight(const ScheduleShape& shape, int stage) const = 0;
};

/// All schedules; the ids are kScheduleKinds (core/spec/layout.h).
[[nodiscard]] const Catalogue<Schedule>& schedules();

} // namespace foretrain
