// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QString>

class QPainter;

namespace foretrain::gui {

struct Frame;
struct ParallelAxis;
struct Theme;

constexpr double kNoValue = -0.1; ///< place of the notch for rows without a value

/// "step time (s) log ↑".
[[nodiscard]] QString axis_title(const ParallelAxis& axis);
/// Axes of the parallel coordinates with their titles, ends and names of values; axis i stands at x = i.
void paint_axes(QPainter& painter, const Frame& frame, const Theme& theme, const std::vector<ParallelAxis>& axes);

} // namespace foretrain::gui
