#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/spec/layout.h"

namespace foretrain {

/// A layout in some thirty bytes, kept beside its JSON so that a hundred thousand are read in a fraction of a second.
/// Empty when it has something that the code has no place for: the JSON is what counts.
[[nodiscard]] std::string layout_code(const Layout& layout);
/// Absent: not a code of this version; the JSON is to be read.
[[nodiscard]] std::optional<Layout> layout_from_code(std::string_view code);

} // namespace foretrain
