// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QPointF>

namespace foretrain::gui {

/// A mark of a scatter plot, and the row it stands for.
struct Point {
  double x = 0;
  double y = 0;
  double color = 0; ///< value that the colour shows; NaN: unknown
  double size = 1;  ///< radius, in that of the usual mark
  int row = 0;
};

/// Index of the point nearest to a pixel, -1 when none is within `within` pixels. `place` gives a point's pixel.
template <class Place>
[[nodiscard]] int nearest_point(const std::vector<Point>& points, QPointF pixel, double within, const Place& place) {
  double best = within * within;
  int found = -1;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const QPointF d = place(points[i]) - pixel;
    const double distance = d.x() * d.x() + d.y() * d.y();
    if (distance >= best) continue;
    best = distance;
    found = static_cast<int>(i);
  }
  return found;
}

} // namespace foretrain::gui
