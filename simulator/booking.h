#pragma once

#include "simulator/machine.h"
#include "simulator/rank_state.h"

/// Where a rank's time goes. Its compute lane is always computing or waiting for one lane; what it waits for gets the
/// time, so that parts add up to the step.
namespace foretrain {

/// The compute lane has worked on, or waited for, `lane` from `idle_since` until `now`.
void book_wait(RankState& state, Lane lane, double now, RankRun& out);

/// The rank has come to its end: what outlasts its last compute step. Sets `out.finish`.
void book_end(RankState& state, RankRun& out);

/// From there to the end of the step it waits for other ranks.
void book_until(const RankState& state, double seconds, RankRun& out);

} // namespace foretrain
