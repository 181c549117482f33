#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/program/places.h"
#include "core/spec/semantics.h"
#include "simulator/cost.h"

namespace foretrain {

/// What the cost model says of one op of a rank's step.
struct PlannedOp {
  OpPlace place;
  TimePart part = TimePart::compute; ///< where its time is booked
  double seconds = 0;                ///< undisturbed; of the start of a transfer and of its wait: 0 and the transfer
  Evidence evidence = Evidence::measured;
};

/// The ops of a role in the order of `places_of`, with the durations that replay takes.
[[nodiscard]] std::vector<PlannedOp> planned_ops(const Program& program, const Role& role, const CostModel& cost,
                                                 const Semantics& semantics);

/// What the allocator should hold at most within one instruction of a role.
struct PlannedPeak {
  int instruction = 0; ///< index into Role::instructions
  std::string name;    ///< "forward, micro-batch 0, chunk 1"; of the step's end "step 2 optimizer"; no two alike
  std::int64_t bytes = 0;
};
/// Of slots and of the step's end, from the memory timeline.
[[nodiscard]] std::vector<PlannedPeak> planned_peaks(const Program& program, const Role& role);

/// "forward ffn_up": pass and name, the same for every layer and micro-batch.
[[nodiscard]] std::string kind_of(const OpPlace& place);

} // namespace foretrain
