// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <span>

namespace foretrain::gui {

/// A study to begin with.
struct Example {
  const char* id;
  const char* title;
  const char* text;     ///< what it shows
  const char* document; ///< the study, JSON with presets by name
};

[[nodiscard]] std::span<const Example> examples();

} // namespace foretrain::gui
