#pragma once

#include <vector>

#include "simulator/machine.h"
#include "simulator/simulation.h"
#include "simulator/topology.h"

namespace foretrain {

/// Runs the machine on SimGrid's flow model: all transfers share all links max-min. SimGrid allows one engine at a time
/// in a process, never resets its clock, and aborts on modelling mistakes: callers run this in a process of its own,
/// once. The result's `links` and `groups` are filled.
[[nodiscard]] Result<Simulation> run_on_simgrid(const Script& script, const World& world, const Topology& topology,
                                                MachineOptions options = {});

/// "3.32", "4.0": the library this was built with.
[[nodiscard]] std::string simgrid_version();

} // namespace foretrain
