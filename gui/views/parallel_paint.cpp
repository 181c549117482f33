// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/parallel_paint.h"

#include <algorithm>

#include <QPainter>

#include "gui/model/numbers.h"
#include "gui/plot/chart.h"
#include "gui/plot/theme.h"
#include "gui/views/parallel_data.h"
#include "gui/views/view.h"

namespace foretrain::gui {
namespace {

/// In two lines, by turns, where one would be too narrow.
void paint_title(QPainter& painter, const Frame& frame, const Theme& theme, const std::vector<ParallelAxis>& axes,
                 std::size_t axis) {
  const QFontMetricsF metrics(painter.font());
  const double step = frame.x(1) - frame.x(0);
  double widest = 0;
  for (const ParallelAxis& each : axes) widest = std::max(widest, metrics.horizontalAdvance(axis_title(each)));
  const bool turns = widest + 8 > step;
  const QString title =
      metrics.elidedText(axis_title(axes[axis]), Qt::ElideRight, std::max(20.0, (turns ? 2 : 1) * step - 8));
  const double width = metrics.horizontalAdvance(title);
  const double x = std::clamp(frame.x(double(axis)) - width / 2, frame.area.left(),
                              std::max(frame.area.left(), frame.area.right() - width));
  painter.setPen(theme.text);
  painter.drawText(
      QPointF(x, frame.area.top() + metrics.ascent() + 2 + (turns && axis % 2 == 1 ? metrics.height() : 0)), title);
}

} // namespace

QString axis_title(const ParallelAxis& axis) {
  return text_of(title_with_unit(*axis.field)) + (axis.logarithmic ? QStringLiteral(" log") : QString()) +
         (axis.flipped ? QStringLiteral(" ↓") : QStringLiteral(" ↑"));
}

void paint_axes(QPainter& painter, const Frame& frame, const Theme& theme, const std::vector<ParallelAxis>& axes) {
  const QFontMetricsF metrics(painter.font());
  constexpr double kGap = 10; ///< between a name and the next axis
  const double room = std::max(16.0, frame.x(1) - frame.x(0) - kGap);
  const auto label = [&](std::size_t axis, double place, const QString& whole) {
    const QString text = axis + 1 < axes.size() ? metrics.elidedText(whole, Qt::ElideRight, room) : whole;
    const QPointF where = frame.at(double(axis), place);
    const double width = metrics.horizontalAdvance(text) + 2;
    const QRectF box(where.x() + 4, where.y() - metrics.height() / 2, width, metrics.height());
    QColor back = theme.base;
    back.setAlphaF(0.8F);
    painter.fillRect(box, back);
    painter.setPen(theme.text);
    painter.drawText(box, Qt::AlignCenter, text);
  };
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const ParallelAxis& axis = axes[i];
    painter.setPen(QPen(theme.line, 1.4));
    painter.drawLine(frame.at(double(i), 0), frame.at(double(i), 1));
    painter.drawLine(frame.at(double(i), kNoValue) - QPointF(3, 0), frame.at(double(i), kNoValue) + QPointF(3, 0));
    paint_title(painter, frame, theme, axes, i);
    if (axis.field->kind == FieldKind::text) {
      for (std::size_t v = 0; v < axis.field->values.size(); ++v)
        if (double(v) >= axis.low && double(v) <= axis.high)
          label(i, axis.place(double(v)), QString::fromStdString(axis.field->values[v]));
    } else {
      for (const double value : {axis.low, axis.high})
        label(i, axis.place(value),
              axis.field->kind == FieldKind::flag ? (value > 0 ? QStringLiteral("yes") : QStringLiteral("no"))
                                                  : QString::fromStdString(short_value(*axis.field, value)));
    }
  }
}

} // namespace foretrain::gui
