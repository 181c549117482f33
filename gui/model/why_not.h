// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "gui/model/environment.h"
#include "gui/model/rows.h"

namespace foretrain::gui {

/// A layout in words, "tp 8 pp 4 micro_batch 2 schedule interleaved*2 group 5 sharding optimizer recompute full": what
/// is not named stays as in `base`, and dp takes the devices that are left. Error: a word that is none of these, a
/// value that does not read.
[[nodiscard]] Result<Layout> layout_in_words(const std::string& words, const Layout& base, int devices);
/// The same words for a layout, to begin with.
[[nodiscard]] std::string words_of(const Layout& layout);

/// Why a layout is where it is, whether or not the search has met it.
struct WhyNot {
  Layout layout;
  Prediction prediction; ///< with every rule that it breaks
  int row = -1;          ///< among the results; -1: the search has not kept it
  int rank = 0;          ///< from 1: where its step time would put it
};
/// Takes as long as a replay op by op. Errors: as `predict`.
[[nodiscard]] Result<WhyNot> why_not(const Environment& environment, const Results& results, const Layout& layout);

/// The answer, a line each: what it would take, or which rules it breaks, with both numbers and what would be legal.
[[nodiscard]] std::vector<std::string> lines_of(const WhyNot& answer);

} // namespace foretrain::gui
