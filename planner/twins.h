#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/program/schedules/schedule.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"

/// Layouts that are one under several names: a space lists one of them.
namespace foretrain {

/// Whether more than one rank shares what sharding would cut: dense state over dp_shard × cp, that of experts over the
/// ranks of a stage that hold the same ones. Otherwise every kind of sharding is the same layout.
[[nodiscard]] inline bool shards_anything(const Layout& l, bool experts) {
  const std::int64_t dense = std::int64_t{l.dp_shard} * l.cp;
  return dense > 1 || (experts && dense * l.tp / (std::int64_t{l.ep} * l.etp) > 1);
}

/// Whether another schedule, listed before this one in `schedules`, runs the same slots in the same order on every
/// stage: with few micro-batches zb-h2 is zb-h1, and where nothing better is within its memory so is zb-1p. `weights`
/// of the layout are asked for where a schedule follows them.
[[nodiscard]] bool repeats_schedule(const Layout& layout, const JobSpec& job, const std::vector<std::string>& schedules,
                                    const std::function<SlotWeights()>& weights);

} // namespace foretrain
