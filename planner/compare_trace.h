#pragma once

#include <string>
#include <vector>

#include "planner/measured_run.h"
#include "planner/planned_ops.h"
#include "simulator/simulation.h"

namespace foretrain {

/// Both timelines in one Chrome trace (Perfetto opens it): processes "predicted stage S" of the simulation, which must
/// be recorded, and "measured rank R" of the step that the run recorded in full. Both begin at 0.
/// `ops`: by stage; `stage`: by rank.
[[nodiscard]] Result<std::string> compared_trace(const Simulation& simulation, const MeasuredRun& run,
                                                 const std::vector<std::vector<PlannedOp>>& ops,
                                                 const std::vector<int>& stage);

} // namespace foretrain
