#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Which folder may include which, and which library may be used where (docs/architecture.md).
namespace foretrain::architecture {

/// The part of the project that a file belongs to: "base", "spec", …, "cli", "tests"; empty when it is in no known
/// folder.
[[nodiscard]] std::string part_of(std::string_view path);

/// One line per include of `text` that its arrow forbids: "db/bad.h: db may not include planner (planner/search.h)".
/// `path` is relative to the repository's root.
[[nodiscard]] std::vector<std::string> wrong_includes(std::string_view path, std::string_view text);

} // namespace foretrain::architecture
