#pragma once

#include "core/base/result.h"
#include "core/program/program.h"
#include "core/spec/semantics.h"
#include "simulator/cost.h"
#include "simulator/launches.h"
#include "simulator/private_network.h"
#include "simulator/simulation.h"

namespace foretrain {

/// Durations of the ops of one Program from the cost model.
class CostDurations final : public Durations {
public:
  CostDurations(const CostModel& cost, const Program& program, const Semantics& semantics)
      : cost_(cost), program_(program), semantics_(semantics) {}
  [[nodiscard]] double local_seconds(const Op& op) const override;
  [[nodiscard]] Traffic collective(const Op& op) const override;
  [[nodiscard]] double layer_floor() const override { return semantics_.host_per_layer.value; }
  [[nodiscard]] double restart() const override { return restart_seconds(semantics_); }
  [[nodiscard]] Traffic transfer(Bytes bytes, int tier) const override;

private:
  const CostModel& cost_;
  const Program& program_;
  const Semantics& semantics_;
};

struct ReplayOptions {
  bool record = false;         ///< timeline and memory over time, op by op; slower
  int ranks_per_processor = 1; ///< as in MachineOptions; of a cluster, where the cost model knows it
};

/// Replays the Program at op granularity, one rank per pipeline stage on private ports. Milliseconds.
/// Error: the Program does not pair its transfers.
[[nodiscard]] Result<Simulation> replay(const Program& program, const CostModel& cost, const Semantics& semantics,
                                        ReplayOptions options = {});

/// The same with durations and link rates from elsewhere.
[[nodiscard]] Result<Simulation> replay(const Script& script, const TierRates& rates, ReplayOptions options = {});

} // namespace foretrain
