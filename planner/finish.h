#pragma once

#include <optional>

#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// What a device does of the model's work in a step, by Megatron's count; 0 where the model has no formula, or the
/// device's peak is not known.
class Utilisation {
public:
  Utilisation(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job, const Semantics& semantics,
              int tp);
  [[nodiscard]] double tflops_per_device(double step_seconds) const;
  [[nodiscard]] double mfu_percent(double step_seconds) const;

private:
  double tflop_ = 0;      ///< of a step on one device
  double peak_share_ = 0; ///< the same in percent of what the device does in a second at its peak
};

/// Completes a prediction from its step time and memory: throughput, model FLOP/s and MFU (Megatron's convention),
/// verdict against the capacity with an `out-of-memory` rejection, 80 % interval by evidence.
void finish_prediction(Prediction& prediction, const Plan& plan, const Semantics& semantics,
                       std::optional<Bytes> capacity);

} // namespace foretrain
