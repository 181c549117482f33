#pragma once

#include <array>
#include <vector>

#include "core/program/program.h"
#include "simulator/block_time.h"
#include "simulator/cost.h"

namespace foretrain {

/// Which micro-batch a slot runs: collectives between blocks may run in the first or the last one only.
enum class Turn { first, middle, last };

/// One slot of a chunk, alone on its rank.
struct SlotTimeOf {
  double seconds = 0;       ///< until compute is done
  double outstanding = 0;   ///< by how much the last gradient reduction outlasts it
  TimeParts parts{};        ///< add up to `seconds`
  Block::Memory memory;
};

/// A chunk's slots by pass and turn; passes that the schedule does not use are zero.
struct ChunkProfile {
  std::array<SlotTimeOf, 3> forward, backward, input, weight; ///< by Turn
  [[nodiscard]] const SlotTimeOf& at(Pass pass, Turn turn) const;
};

/// Everything about a stage that does not depend on the schedule's order.
struct StageProfile {
  std::vector<ChunkProfile> chunks;
  double step_seconds = 0;   ///< ops at the step's end
  TimeParts step_parts{};
  MemoryParts persistent{};
  Bytes persistent_total;
  Bytes step_peak;           ///< highest transient of the step's end
  Bytes outside;
  Bytes boundary;
  Evidence evidence = Evidence::measured;
};

/// Times of every block of a program, by block and pass (forward, backward, input, weight).
using BlockTimes = std::vector<std::array<BlockTime, 4>>;
[[nodiscard]] BlockTimes block_times(const Program& program, const CostModel& cost, const HostFloor& host);

/// Profiles one stage: blocks as units, the collectives between them on their own streams.
[[nodiscard]] StageProfile stage_profile(const Program& program, const Role& role, const BlockTimes& times,
                                         const CostModel& cost, const HostFloor& host);

} // namespace foretrain
