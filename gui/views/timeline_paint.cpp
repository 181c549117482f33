// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/timeline_paint.h"

#include <algorithm>

#include <QPainter>

#include "gui/model/numbers.h"
#include "gui/views/timeline_data.h"
#include "gui/views/view.h"

namespace foretrain::gui {
namespace {

/// Samples within a pixel are one: the highest of them.
QPolygonF memory_curve(const std::vector<MemorySample>& samples, const Frame& frame,
                       const std::function<double(double)>& y_of) {
  QPolygonF line;
  const auto first = std::partition_point(samples.begin(), samples.end(),
                                          [&](const MemorySample& m) { return m.at < frame.shown.left(); });
  double last_x = -1e9;
  double column = 0;
  for (auto sample = first == samples.begin() ? first : std::prev(first);
       sample != samples.end() && sample->at <= frame.shown.right(); ++sample) {
    const double x = frame.x(sample->at);
    column = x - last_x < 1 ? std::max(column, double(sample->peak.value)) : double(sample->peak.value);
    if (x - last_x < 1 && !line.isEmpty()) {
      line.back().setY(y_of(column));
      continue;
    }
    if (!line.isEmpty()) line << QPointF(x, line.back().y());
    line << QPointF(x, y_of(column));
    last_x = x;
  }
  return line;
}

} // namespace

void fill_box(QPainter& painter, const Theme& theme, const Box& box, const QRectF& area) {
  if (box.source >= 0) return painter.fillRect(area, pass_color(theme, box.kind));
  double y = area.top();
  for (std::size_t kind = 0; kind < box.shares.size(); ++kind) {
    if (box.shares[kind] <= 0) continue;
    const double height = area.height() * double(box.shares[kind]);
    painter.fillRect(QRectF(area.left(), y, area.width(), height), pass_color(theme, static_cast<int>(kind)));
    y += height;
  }
}

void paint_arrow(QPainter& painter, QPointF from, QPointF to) {
  constexpr double kHead = 7;
  painter.drawLine(from, to);
  const QLineF back(to, from);
  if (back.length() < kHead) return;
  for (const double turn : {-25.0, 25.0}) {
    QLineF side = back;
    side.setLength(kHead);
    side.setAngle(back.angle() + turn);
    painter.drawLine(side);
  }
}

void paint_memory(QPainter& painter, const Frame& frame, const Theme& theme, const Simulation& simulation, double top,
                  double bottom, double capacity) {
  double highest = 1;
  for (const StageRun& stage : simulation.stages) highest = std::max(highest, double(stage.peak.value));
  const auto y_of = [&](double bytes) { return frame.y(bottom - bytes / (highest * 1.05) * (bottom - top)); };
  const auto color = [&](std::size_t stage) { return theme.series[stage % theme.series.size()]; };
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setBrush(Qt::NoBrush);
  for (std::size_t s = 0; s < simulation.stages.size(); ++s) {
    painter.setPen(QPen(color(s), 1.2));
    painter.drawPolyline(memory_curve(simulation.stages[s].memory, frame, y_of));
  }
  painter.setRenderHint(QPainter::Antialiasing, false);
  const QFontMetricsF metrics(painter.font());
  QString text = QStringLiteral("allocated per stage, highest ") + text_of(short_bytes(highest));
  if (capacity > 0) text += QStringLiteral(" of ") + text_of(short_bytes(capacity));
  double x = frame.area.left() + 6;
  const double y = frame.y(bottom) - 6;
  painter.setPen(theme.muted);
  painter.drawText(QPointF(x, y), text);
  x += metrics.horizontalAdvance(text) + 10;
  if (simulation.stages.size() > theme.series.size()) return; // colours repeat: they tell nothing
  for (std::size_t s = 0; s < simulation.stages.size(); ++s) {
    const QString name = QString::number(s);
    painter.fillRect(QRectF(x, y - metrics.ascent() * 0.6, metrics.ascent() * 0.5, metrics.ascent() * 0.5), color(s));
    painter.drawText(QPointF(x + metrics.ascent() * 0.5 + 3, y), name);
    x += metrics.ascent() * 0.5 + metrics.horizontalAdvance(name) + 12;
  }
}

} // namespace foretrain::gui
