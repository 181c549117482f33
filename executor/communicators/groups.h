#pragma once

#include <vector>

#include "core/program/program.h"

namespace foretrain {

/// Groups with more than one member that the role's transfers name, in the order of the enum: the same on every rank.
[[nodiscard]] std::vector<Group> groups_of(const Program& program, const Role& role);

} // namespace foretrain
