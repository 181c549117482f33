#pragma once

#include <optional>
#include <string>

#include "core/base/json.h"
#include "core/program/program.h"

namespace foretrain {

/// The Program for people, and for golden tests: equal Programs give equal texts, a difference shows as a line. With
/// `role` only that stage's chunks and instructions and the blocks that it uses. The role must be there.
[[nodiscard]] std::string to_text(const Program& program, std::optional<int> role = std::nullopt);

/// The same as a document: {"semantics", "mesh", "blocks", "roles"}.
[[nodiscard]] Json to_json(const Program& program, std::optional<int> role = std::nullopt);

} // namespace foretrain
