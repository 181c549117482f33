#pragma once

#include <array>
#include <utility>
#include <vector>

#include "core/program/program.h"
#include "simulator/block_time.h"
#include "simulator/cost.h"
#include "simulator/slot_order.h"

namespace foretrain {

/// Which micro-batch a slot runs: collectives between blocks may run in the first or the last one only.
enum class Turn { first, middle, last };

/// One slot of a chunk on its rank.
struct SlotTimeOf {
  double seconds = 0;     ///< until compute is done
  double outstanding = 0; ///< by how much the last gradient reduction outlasts it
  double compute = 0;     ///< seconds of its compute stream, undisturbed
  TimeParts parts{};      ///< add up to `seconds`
  Block::Memory memory;
};

/// A chunk's slots by pass and turn; passes that the schedule does not use are zero.
struct ChunkProfile {
  std::array<SlotTimeOf, 3> forward, backward, input, weight; ///< by Turn
  /// Collectives that run in every micro-batch go on beside the next slot: seconds of a middle slot by its pass and the
  /// pass that ran before it. All zero when there are none: then a slot takes its time after any other.
  std::array<std::array<double, kPasses>, kPasses> after{};
  bool chained = false; ///< `after` holds
  double ahead = 0;   ///< by how much the gathers of the first forward outlast it when both begin at once, idle before
  Load reduction;     ///< what still runs when the last backward is done: it shares ports with what that sends
  double backlog = 0; ///< by how much reductions fall behind with every micro-batch; they are waited for at the end
  std::array<const BlockTime*, kPasses>
      begins{}; ///< by pass: the block that a slot begins with; as long as the times live
  int blocks = 0;
  Evidence evidence = Evidence::measured; ///< worst of the collectives between blocks
  [[nodiscard]] const SlotTimeOf& at(Pass pass, Turn turn) const;
  [[nodiscard]] std::array<SlotTimeOf, 3>& turns(Pass pass);
};

/// What is kept of a chunk's slots while what is recomputed changes. Forwards do not. What the reductions of the last
/// backward take from it is, where single modules are recomputed, as without.
struct KnownSlots {
  std::vector<std::pair<double, int>> blocks; ///< seconds of its blocks, and how many in a row; empty: not known
  SlotTimeOf slot;
  double ahead = 0;
  Evidence evidence = Evidence::measured;
  bool profiled = false; ///< the caller's: the chunk has been profiled without recomputation
  bool has_last = false;
  bool use_last = true;        ///< the caller's: whole layers are not recomputed
  double last_delay = 0;       ///< by which reductions put off the last backward
  double last_outstanding = 0; ///< by which they outlast it
  Evidence last_evidence = Evidence::measured;
};

/// Profiles the slots of one chunk of `role`: blocks as units, the collectives between them on their own streams. Of
/// the program only blocks' memory, the mesh and the number of micro-batches are read; `times` are those of its blocks.
/// `known`: of the same chunk under another recomputation, or an empty one; filled.
void fill_chunk_profile(const Program& program, const Role& role, const Chunk& chunk, const BlockTimes& times,
                        const CostModel& cost, const HostFloor& host, ChunkProfile& profile, KnownSlots& known);

} // namespace foretrain
