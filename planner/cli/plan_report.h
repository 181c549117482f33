#pragma once

#include <string>

#include "core/base/json.h"
#include "planner/search.h"

namespace foretrain::cli {

/// The document of `foretrain plan --json` (docs/cli.md).
[[nodiscard]] Json plan_document(const Study& study, const SearchResult& result);

/// The same for people, `width` columns wide; `color`: for a terminal.
[[nodiscard]] std::string plan_text(const Study& study, const SearchResult& result, int width, bool color);

/// The ranked layouts with all fields.
[[nodiscard]] std::string plan_csv(const Study& study, const SearchResult& result);

} // namespace foretrain::cli
