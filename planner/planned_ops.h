#pragma once

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

/// "forward ffn_up": pass and name, the same for every layer and micro-batch.
[[nodiscard]] std::string kind_of(const OpPlace& place);

} // namespace foretrain
