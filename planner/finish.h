#pragma once

#include <optional>

#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// Completes a prediction from its step time and memory: throughput, model FLOP/s and MFU (Megatron's convention),
/// verdict against the capacity with an `out-of-memory` rejection, 80 % interval by evidence.
void finish_prediction(Prediction& prediction, const Plan& plan, const Semantics& semantics,
                       std::optional<Bytes> capacity);

} // namespace foretrain
