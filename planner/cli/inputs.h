#pragma once

#include <string>

#include "core/base/result.h"
#include "core/spec/calibration.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "core/spec/semantics.h"
#include "planner/cli/commands/commands.h"

namespace foretrain::cli {

/// The study of a file or of flags, flags before the file's members. Errors: what is missing, by flag.
[[nodiscard]] Result<Study> study_of(const Context& context, const PlanOptions& options);

/// A plan from a file, with what a prediction of it needs.
struct LoadedPlan {
  Plan plan;
  Semantics semantics;
  Calibration calibration;
};
[[nodiscard]] Result<LoadedPlan> load_plan(const Context& context, const std::string& file);

/// What is known of the device's speed: the file of --calibration, the user's own (foretrain calibrate), a preset.
/// Errors: --calibration is of another device; a file that does not read.
[[nodiscard]] Result<Calibration> calibration_of(const Context& context, const DeviceSpec& device);

/// Error: not an engine's id; SimGrid without its worker program.
[[nodiscard]] Result<Engine> engine_of(const Context& context, const std::string& id);

} // namespace foretrain::cli
