#pragma once

#include "core/program/schedules/schedule.h"
#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/model.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// The part of a layout that `slot_weights` follows; the rest is at its default.
[[nodiscard]] Layout weighed_part(const Layout& layout);

/// Relative costs of the slots of a stage of layers under a schedule that splits the backward: each kernel as long as
/// the device's peak or its memory bandwidth lets it (roofline: Williams et al. 2009, doi:10.1145/1498765.1498785),
/// none of it transfers, the ends of the model and recomputation left out. Equal where a peak is not known.
[[nodiscard]] SlotWeights slot_weights(const ModelSpec& model, const JobSpec& job, const Semantics& semantics,
                                       const DeviceSpec& device, const Layout& layout);

} // namespace foretrain
