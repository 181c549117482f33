#pragma once

#include <array>
#include <vector>

#include "core/program/program.h"
#include "core/spec/prediction.h"
#include "simulator/cost.h"
#include "simulator/rank_streams.h"
#include "simulator/slot_order.h"

namespace foretrain {

/// Duration of one pass of a block on a rank of its own, with what its compute stream spends it on. Parts add up.
struct BlockTime {
  double seconds = 0;
  double pad = 0; ///< of these, after the last kernel: the host has not launched it sooner
  TimeParts parts{};
  double compute = 0;     ///< seconds of its compute stream, undisturbed
  std::vector<Work> work; ///< its stretches in order, as others beside it see them: `seconds` less `pad`
  Evidence evidence = Evidence::measured;
};

/// Times of every block of a program, by pass (`slot_pass`); they outlive this list.
using BlockTimes = std::vector<const std::array<BlockTime, kPasses>*>;

/// Host time that a block's launches need at least: kernels cannot go faster than they are issued.
struct HostFloor {
  double per_layer = 0; ///< forward of one layer; a backward takes twice as long
  double sync = 0;      ///< one device synchronisation
};

/// Runs the ops of one pass on their streams: ops of a stream in order, each after the buffers it waits for; compute
/// slows down while a transfer runs beside it and the other way round (CostModel::interference, transfer_rate), and
/// transfers beside each other share the rank's ports.
[[nodiscard]] BlockTime block_time(const Block& block, Pass pass, const Mesh& mesh, const CostModel& cost,
                                   const HostFloor& host);

/// Part of an all-to-all's copies that cross nodes when a node gets one copy of a token (`Op::deduplicated`), relative
/// to one copy per expert. 1 where it is not de-duplicated.
[[nodiscard]] double network_share(const Op& op, const GroupShape& shape);

/// Undisturbed duration of any op that is not a pipeline transfer.
[[nodiscard]] Cost op_cost(const Op& op, const Mesh& mesh, const CostModel& cost, const HostFloor& host);

} // namespace foretrain
