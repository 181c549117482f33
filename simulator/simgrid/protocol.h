#pragma once

#include <cstdint>
#include <string>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/plan.h"
#include "simulator/simulation.h"

/// What goes between a pool and `foretrain-sim-worker`: one JSON document per line each way. A request is
/// {"id", "data": folder of presets, "plan", "record", "fold"}; the reply {"id", "simulation"} or {"id", "error"}.
namespace foretrain {

struct SimulationRequest {
  std::int64_t id = 0;
  Plan plan;
  std::string data;    ///< DataFolder::root
  bool record = false; ///< timeline and memory over time
  bool fold = true;    ///< one rank for all copies of it where that changes nothing
  bool operator==(const SimulationRequest&) const = default;
};

[[nodiscard]] Json to_json(const Simulation& simulation);
[[nodiscard]] Result<Simulation> simulation_from(const Json& json);

/// One line, newline included.
[[nodiscard]] std::string request_line(const SimulationRequest& request);
/// Error: not such a request; `where` names the place.
[[nodiscard]] Result<SimulationRequest> request_from(std::string_view line);

[[nodiscard]] std::string reply_line(std::int64_t id, const Result<Simulation>& result);
struct Reply {
  std::int64_t id = 0;
  Result<Simulation> result;
};
[[nodiscard]] Result<Reply> reply_from(std::string_view line);

} // namespace foretrain
