// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QColor>
#include <QString>

class QFont;
class QPainter;
class QPointF;
class QRectF;

namespace foretrain::gui {

struct Theme;

struct LegendEntry {
  QColor color;
  QString text;
  enum class Shape { box, line } shape = Shape::box;
};

/// Lines that a legend takes at a width.
[[nodiscard]] int legend_lines(const QFont& font, const std::vector<LegendEntry>& entries, double width);
/// From the top, in as many lines as it takes.
void draw_legend(QPainter& painter, const Theme& theme, const std::vector<LegendEntry>& entries, double left,
                 double right);
/// A hover card beside a point, inside an area.
void draw_card(QPainter& painter, const Theme& theme, const QRectF& area, QPointF at, const QStringList& lines);

} // namespace foretrain::gui
