#pragma once

#include <map>
#include <unordered_map>
#include <utility>

#include "simulator/script.h"

namespace foretrain {

/// Asks for the cost of an op once: equal layers share their ops.
class ScriptCosts {
public:
  ScriptCosts(const Program& program, const Durations& durations, Script& script)
      : program_(program), durations_(durations), script_(script) {}

  [[nodiscard]] double layer_floor() const { return durations_.layer_floor(); }

  /// Fills kind, duration and wire of a step that runs `op`. Collectives of one rank take no time.
  void fill(ScriptStep& step, const Op& op) {
    step.op = &op;
    step.lane = lane_of(op.stream);
    step.part = op.part;
    step.group = op.group;
    const auto [it, fresh] = known_.try_emplace(&op);
    if (fresh) {
      if (op.kind != OpKind::collective) {
        it->second.seconds = durations_.local_seconds(op);
      } else if (program_.mesh.size(op.group) > 1) {
        it->second.wire = static_cast<int>(script_.traffic.size());
        script_.traffic.push_back(durations_.collective(op));
        script_.groups_used[static_cast<std::size_t>(op.group)] = true;
      }
    }
    step.seconds = it->second.seconds;
    step.wire = it->second.wire;
    if (step.wire >= 0) step.kind = ScriptStepKind::collective;
  }

  /// Wire of a pipeline transfer.
  int transfer(Bytes bytes, int tier) {
    const auto [it, fresh] =
        transfers_.try_emplace(std::pair(bytes.value, tier), static_cast<int>(script_.traffic.size()));
    if (fresh) {
      script_.traffic.push_back(durations_.transfer(bytes, tier));
      if (program_.blocking_p2p && bytes.value > 0) script_.traffic.back().wire.latency += durations_.restart();
    }
    return it->second;
  }

private:
  struct Known {
    double seconds = 0;
    int wire = -1;
  };
  const Program& program_;
  const Durations& durations_;
  Script& script_;
  std::unordered_map<const Op*, Known> known_;
  std::map<std::pair<std::int64_t, int>, int> transfers_;
};

/// Flattens one slot. Dependencies come from what ops read and write: across the blocks of a slot, a block's input is
/// the output of the block before, and a gradient likewise.
[[nodiscard]] ScriptSlot build_slot(const Program& program, const Role& role, const Instruction& instruction,
                                    ScriptOptions options, ScriptCosts& costs);

} // namespace foretrain
