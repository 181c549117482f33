#pragma once

#include "simulator/machine.h"
#include "simulator/rank_state.h"

/// Where a rank's time goes. Its compute lane is always computing or waiting for one lane; what it waits for gets the
/// time, so that parts add up to the step.
namespace foretrain {

/// With post-validation a rank's step is its own span: from its first compute, what that needs of the rank itself
/// included, until its end. What it waits before for its first input, and at the end for other stages, the next step
/// does not wait for: its input is there by then, and the other stages end as much later as they began.

/// The compute lane goes to `step`: notes the gathers that it has waited for until its first step that takes time.
/// Sets `out.begin` there, and takes what was booked before out of the parts.
void book_begin(RankState& state, const ScriptInstruction& instruction, const ScriptStep& step, bool blocking,
                double now, RankRun& out);

/// The compute lane has worked on, or waited for, `lane` from `idle_since` until `now`.
void book_wait(RankState& state, Lane lane, double now, RankRun& out);

/// The rank has come to its end: what outlasts its last compute step. Sets `out.finish` and `out.span`.
void book_end(RankState& state, RankRun& out);

/// From there until `seconds`, the step, it waits for other ranks.
void book_until(double seconds, RankRun& out);

} // namespace foretrain
