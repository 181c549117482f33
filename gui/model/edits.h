// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/spec/layout.h"
#include "gui/model/filter_text.h"
#include "gui/model/rows.h"

namespace foretrain::gui {

struct Pin {
  Layout layout;
  std::string note;
  bool operator==(const Pin&) const = default;
};

/// All that undo brings back: what the user decided, as opposed to what was computed or looked at.
struct Edits {
  Json document; ///< the study as written: presets by name; null when there is none
  std::vector<Chip> chips;
  std::vector<Pin> pins;
  std::optional<Layout> baseline;
  std::vector<std::string> columns; ///< of the table, in order; empty: the usual ones
  std::vector<SortKey> sort;        ///< empty: by rank
  bool operator==(const Edits&) const = default;
};

/// For the session file: unknown keys of `before` are kept.
[[nodiscard]] Json with_edits(const Edits& edits, Json before);
/// What does not read is left out: a file of another version must not keep the session from opening.
[[nodiscard]] Edits edits_from(const Json& json);

} // namespace foretrain::gui
