// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/plot/legend.h"

#include <algorithm>

#include <QPainter>

#include "gui/plot/theme.h"

namespace foretrain::gui {
namespace {

constexpr double kGap = 14; ///< pixels between entries

double entry_width(const QFontMetricsF& metrics, const LegendEntry& entry) {
  return metrics.ascent() + 6 + metrics.horizontalAdvance(entry.text);
}

} // namespace

int legend_lines(const QFont& font, const std::vector<LegendEntry>& entries, double width) {
  const QFontMetricsF metrics(font);
  int lines = entries.empty() ? 0 : 1;
  double x = 0;
  for (const LegendEntry& entry : entries) {
    if (x > 0 && x + entry_width(metrics, entry) > width) {
      ++lines;
      x = 0;
    }
    x += entry_width(metrics, entry) + kGap;
  }
  return lines;
}

void draw_legend(QPainter& painter, const Theme& theme, const std::vector<LegendEntry>& entries, double left,
                 double right) {
  const QFontMetricsF metrics(painter.font());
  const double side = metrics.ascent();
  double x = left;
  double y = 4;
  for (const LegendEntry& entry : entries) {
    if (x > left && x + entry_width(metrics, entry) > right) {
      x = left;
      y += metrics.height() + 2;
    }
    const QRectF mark(x, y + (metrics.height() - side) / 2, side, side);
    if (entry.shape == LegendEntry::Shape::line) {
      painter.setPen(QPen(entry.color, 2));
      painter.drawLine(QPointF(mark.left(), mark.center().y()), QPointF(mark.right(), mark.center().y()));
    } else {
      painter.fillRect(mark.adjusted(1, 1, -1, -1), entry.color);
    }
    painter.setPen(theme.text);
    painter.drawText(QPointF(x + side + 4, y + metrics.ascent()), entry.text);
    x += entry_width(metrics, entry) + kGap;
  }
}

void draw_card(QPainter& painter, const Theme& theme, const QRectF& area, QPointF at, const QStringList& lines) {
  if (lines.isEmpty()) return;
  const QFontMetricsF metrics(painter.font());
  double width = 0;
  for (const QString& line : lines) width = std::max(width, metrics.horizontalAdvance(line));
  QRectF card(at + QPointF(14, 10), QSizeF(width + 16, metrics.height() * double(lines.size()) + 10));
  if (card.right() > area.right()) card.moveRight(at.x() - 14);
  if (card.bottom() > area.bottom()) card.moveBottom(at.y() - 10);
  if (card.left() < area.left()) card.moveLeft(area.left());
  if (card.top() < area.top()) card.moveTop(area.top());
  painter.setPen(QPen(theme.line, 0));
  painter.setBrush(theme.raised);
  painter.drawRoundedRect(card, 3, 3);
  painter.setPen(theme.text);
  double y = card.top() + 5 + metrics.ascent();
  for (const QString& line : lines) {
    painter.drawText(QPointF(card.left() + 8, y), line);
    y += metrics.height();
  }
}

} // namespace foretrain::gui
