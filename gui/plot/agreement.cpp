// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/plot/agreement.h"

#include <algorithm>
#include <cmath>

#include <QPainter>

#include "gui/model/numbers.h"
#include "gui/plot/theme.h"

namespace foretrain::gui {
namespace {
constexpr double kBand = 0.1;
constexpr std::size_t kLegend = 12;
} // namespace

AgreementChart::AgreementChart(QWidget* parent) : Chart(parent) {
  paint_marks = [this](QPainter& p, const Frame& f) { paint(p, f); };
  paint_highlights = [this](QPainter& p, const Frame& f) { paint_card(p, f); };
  hovered = [this](QPointF at) {
    const Frame now = frame();
    double best = 12 * 12;
    hover_ = -1;
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const QPointF d = now.at(points_[i].measured, points_[i].predicted) - at;
      if (QPointF::dotProduct(d, d) >= best) continue;
      best = QPointF::dotProduct(d, d);
      hover_ = static_cast<int>(i);
    }
    redraw_highlights();
  };
  left = [this] {
    hover_ = -1;
    redraw_highlights();
  };
}

void AgreementChart::set_points(std::vector<AgreementPoint> points, const QString& quantity,
                                std::function<QString(double)> text, const QStringList& series, const QString& empty) {
  points_ = std::move(points);
  text_ = text;
  hover_ = -1;
  std::erase_if(points_, [](const AgreementPoint& p) { return !(p.measured > 0 && p.predicted > 0); });
  const auto look = [&](const QString& what) {
    AxisLook axis;
    axis.title = what + QStringLiteral(" ") + quantity;
    axis.log = true;
    axis.text = text;
    return axis;
  };
  set_axes(look(QStringLiteral("measured")), look(QStringLiteral("predicted")));
  set_message(points_.empty() ? empty : QString());
  double low = 1e300;
  double high = 0;
  for (const AgreementPoint& p : points_) {
    low = std::min({low, p.measured, p.predicted});
    high = std::max({high, p.measured, p.predicted});
  }
  if (!points_.empty()) set_extent(low / 1.2, high * 1.2, low / 1.2, high * 1.2);
  std::vector<LegendEntry> legend;
  for (qsizetype i = 0; i < series.size() && legend.size() < kLegend; ++i)
    legend.push_back(
        {theme().series[static_cast<std::size_t>(i) % theme().series.size()], series[i], LegendEntry::Shape::box});
  if (!points_.empty()) legend.push_back({theme().grid, QStringLiteral("within 10 %"), LegendEntry::Shape::box});
  set_legend(std::move(legend));
  redraw();
  redraw_highlights();
}

void AgreementChart::paint(QPainter& painter, const Frame& frame) const {
  painter.setClipRect(frame.area);
  const double low = frame.shown.left();
  const double high = frame.shown.right();
  QPolygonF band;
  for (const auto& [x, factor] :
       {std::pair(low, 1 + kBand), std::pair(high, 1 + kBand), std::pair(high, 1 - kBand), std::pair(low, 1 - kBand)})
    band << frame.at(x, x * factor);
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme().grid);
  painter.drawPolygon(band);
  painter.setPen(QPen(theme().line, 1.2));
  painter.drawLine(frame.at(low, low), frame.at(high, high));
  for (const AgreementPoint& point : points_) {
    const QColor color = theme().series[static_cast<std::size_t>(point.series) % theme().series.size()];
    painter.setPen(QPen(mixed(color, theme().text, 0.3), 0.8));
    painter.setBrush(color);
    painter.drawEllipse(frame.at(point.measured, point.predicted), 3.2, 3.2);
  }
  painter.setClipping(false);
}

void AgreementChart::paint_card(QPainter& painter, const Frame& frame) const {
  if (hover_ < 0) return;
  const AgreementPoint& point = points_[static_cast<std::size_t>(hover_)];
  const QPointF at = frame.at(point.measured, point.predicted);
  painter.setPen(QPen(theme().bad, 2));
  painter.setBrush(Qt::NoBrush);
  painter.drawEllipse(at, 6, 6);
  draw_card(painter, theme(), frame.area, at,
            {point.title, QStringLiteral("measured ") + text_(point.measured),
             QStringLiteral("predicted ") + text_(point.predicted),
             QStringLiteral("error ") +
                 QString::fromStdString(signed_percent((point.predicted / point.measured - 1) * 100))});
}

} // namespace foretrain::gui
