#pragma once

#include "core/base/result.h"
#include "core/program/program.h"
#include "core/spec/calibration.h"
#include "core/spec/semantics.h"
#include "simulator/simgrid/protocol.h"

namespace foretrain {

/// Simulates a Program on SimGrid in this process, which must not have run SimGrid before; see `run_on_simgrid`.
/// `fold`: one rank for its tensor-parallel copies where they are copies. Error: a figure that the cluster lacks.
[[nodiscard]] Result<Simulation> simulate_program(const Program& program, const ClusterSpec& cluster,
                                                  const Calibration& calibration, const CostNeeds& needs,
                                                  const Semantics& semantics, bool record, bool fold);

/// Lowers the request's plan and simulates it.
[[nodiscard]] Result<Simulation> simulate_request(const SimulationRequest& request);

} // namespace foretrain
