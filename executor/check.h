#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"
#include "core/spec/plan.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// Why the executor cannot run this plan, each reason naming what it is about; empty when it can. Asked before the plan
/// is lowered: what passes here lowers without a failed check.
[[nodiscard]] std::vector<std::string> check_runnable(const Plan& plan, const Semantics& semantics);

/// The same for a lowered Program: ops, collectives and buffers that the interpreter has no code for.
[[nodiscard]] std::vector<std::string> check_runnable(const Program& program);

} // namespace foretrain
