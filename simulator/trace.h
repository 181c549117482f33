#pragma once

#include <string>

#include "simulator/simulation.h"

namespace foretrain {

/// The timeline as a Chrome trace (JSON object format), which Perfetto and chrome://tracing open: a process per
/// pipeline stage, a thread per stream, a memory counter per stage. Times in microseconds. Needs a recorded simulation.
[[nodiscard]] std::string chrome_trace(const Simulation& simulation);

} // namespace foretrain
