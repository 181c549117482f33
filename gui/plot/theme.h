// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <array>

#include <QColor>

#include "core/spec/prediction.h"

class QAbstractButton;
class QPalette;

namespace foretrain::gui {

/// Every colour of the program. Series are those of Okabe and Ito (2008), told apart by all kinds of colour vision.
struct Theme {
  bool dark = false;
  QColor window; ///< behind everything
  QColor base;   ///< behind tables and plots
  QColor raised; ///< buttons, chips, headers
  QColor text;
  QColor muted; ///< second text: still 4.5 : 1 on base and window
  QColor line;  ///< frames, axes
  QColor grid;
  QColor accent; ///< selection, links
  QColor on_accent;
  QColor selected; ///< behind selected rows
  QColor hovered;  ///< behind the row under the pointer
  QColor bar;      ///< in table cells
  QColor good;
  QColor bad;
  QColor warning;
  std::array<QColor, 8> series;
};

[[nodiscard]] const Theme& light_theme();
[[nodiscard]] const Theme& dark_theme();
[[nodiscard]] QPalette palette_of(const Theme& theme);
/// Gives the whole program the theme's palette.
void apply_palette(const Theme& theme);
/// A button that stays down in the theme's accent: Fusion alone would show it a little darker.
void show_checked(QAbstractButton& button, const Theme& theme);

[[nodiscard]] QColor color_of(const Theme& theme, TimePart part);
[[nodiscard]] QColor color_of(const Theme& theme, MemoryPart part);
/// Black or white, whichever reads better on a fill.
[[nodiscard]] QColor text_on(const QColor& fill);
/// Contrast ratio of WCAG 2.1, 1 … 21.
[[nodiscard]] double contrast(const QColor& a, const QColor& b);
/// Between two colours, 0 … 1.
[[nodiscard]] QColor mixed(const QColor& a, const QColor& b, double share);
/// Blue to yellow over a share of 0 … 1 (after viridis), for colour by value: as much of it as stands out from the
/// theme's background.
[[nodiscard]] QColor gradient(const Theme& theme, double share);

} // namespace foretrain::gui
