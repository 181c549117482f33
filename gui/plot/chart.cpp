// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/plot/chart.h"

#include <cmath>
#include <optional>
#include <utility>

#include "gui/plot/chart_parts.h"

namespace foretrain::gui {

Chart::Chart(QWidget* parent) : QWidget(parent), parts_(std::make_unique<Parts>()) {
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  QCustomPlot* plot = parts_->plot = new QCustomPlot(this);
  layout->addWidget(plot);
  plot->setNoAntialiasingOnDrag(false);
  plot->addLayer("marks", plot->layer("axes"), QCustomPlot::limAbove);
  plot->addLayer("highlights", plot->layer("overlay"), QCustomPlot::limBelow);
  plot->layer("highlights")->setMode(QCPLayer::lmBuffered);
  add_painting(*plot, "marks", [this](QPainter& painter) { paint_layer(painter, false); });
  add_painting(*plot, "highlights", [this](QPainter& painter) { paint_layer(painter, true); });
  QObject::connect(plot, &QCustomPlot::afterLayout, this, [this] { fit_titles(); });
  plot->setMouseTracking(true);
  plot->installEventFilter(this);
  plot->setFocusPolicy(Qt::StrongFocus);
  setFocusProxy(plot);
  apply_theme();
}

Chart::~Chart() = default;

const Theme& Chart::theme() const {
  return *parts_->theme;
}

void Chart::set_theme(const Theme& theme) {
  parts_->theme = &theme;
  apply_theme();
  redraw();
}

void Chart::apply_theme() {
  const Theme& t = *parts_->theme;
  QCustomPlot* plot = parts_->plot;
  plot->setBackground(QBrush(t.base));
  for (QCPAxis* axis : {plot->xAxis, plot->yAxis, plot->xAxis2, plot->yAxis2}) {
    const QPen pen(t.line, 0);
    axis->setBasePen(pen);
    axis->setTickPen(pen);
    axis->setSubTickPen(pen);
    axis->setTickLabelColor(t.muted);
    axis->setLabelColor(t.text);
    axis->setTickLabelFont(font());
    axis->setLabelFont(font());
    axis->grid()->setPen(QPen(t.grid, 0));
    axis->grid()->setZeroLinePen(QPen(t.grid, 0));
  }
}

void Chart::set_axes(const AxisLook& x, const AxisLook& y) {
  parts_->ready = true;
  parts_->x_look = x;
  parts_->y_look = y;
  apply_look(*parts_->plot->xAxis, x);
  apply_look(*parts_->plot->yAxis, y);
}

void Chart::set_extent(double x_low, double x_high, double y_low, double y_high) {
  const auto safe = [](double low, double high) {
    return high > low ? QCPRange(low, high) : QCPRange(low - 0.5, low + 0.5);
  };
  const Shown before = parts_->whole();
  parts_->x_extent = safe(x_low, x_high);
  parts_->y_extent = safe(y_low, y_high);
  if (!(before == parts_->whole())) parts_->history.begin(parts_->whole()); // other data: other pictures
  if (parts_->kept && parts_->kept->first == parts_->whole()) {
    const Shown part = std::exchange(parts_->kept, std::nullopt)->second;
    parts_->plot->xAxis->setRange(part.x_low, part.x_high);
    parts_->plot->yAxis->setRange(part.y_low, part.y_high);
    range_is_new();
  } else if (!zoomed_) {
    show_all();
  }
}

QVariantList Chart::zoom_state() const {
  if (!zoomed_ && !parts_->kept) return {};
  const auto [whole, part] = parts_->kept ? *parts_->kept : std::pair(parts_->whole(), parts_->shown());
  QVariantList state;
  for (const Shown& shown : {whole, part}) state << shown.x_low << shown.x_high << shown.y_low << shown.y_high;
  return state;
}

void Chart::restore_zoom(const QVariantList& state) {
  parts_->kept.reset();
  if (state.size() != 8) return;
  const auto shown = [&](qsizetype at) {
    return Shown{state[at].toDouble(), state[at + 1].toDouble(), state[at + 2].toDouble(), state[at + 3].toDouble()};
  };
  const Shown part = shown(4);
  if (QCPRange::validRange(part.x_low, part.x_high) && QCPRange::validRange(part.y_low, part.y_high))
    parts_->kept.emplace(shown(0), part);
}

void Chart::set_legend(std::vector<LegendEntry> entries) {
  parts_->legend = std::move(entries);
}

void Chart::set_message(const QString& message) {
  parts_->ready = true;
  parts_->message = message;
  const bool visible = message.isEmpty();
  parts_->plot->xAxis->setVisible(visible && parts_->x_look.visible);
  parts_->plot->yAxis->setVisible(visible && parts_->y_look.visible);
}

Frame Chart::frame() const {
  const QCustomPlot* plot = parts_->plot;
  Frame frame;
  frame.area = QRectF(plot->axisRect()->rect());
  const QCPRange x = plot->xAxis->range();
  const QCPRange y = plot->yAxis->range();
  frame.shown = QRectF(x.lower, y.lower, x.size(), y.size());
  frame.x = [axis = plot->xAxis](double value) { return axis->coordToPixel(value); };
  frame.y = [axis = plot->yAxis](double value) { return axis->coordToPixel(value); };
  return frame;
}

QPointF Chart::value_at(QPointF pixel) const {
  return {parts_->plot->xAxis->pixelToCoord(pixel.x()), parts_->plot->yAxis->pixelToCoord(pixel.y())};
}

void Chart::paint_layer(QPainter& painter, bool highlights) {
  if (!parts_->ready || (may_paint && !may_paint())) return;
  const Frame now = frame();
  const Theme& t = *parts_->theme;
  painter.save();
  if (!parts_->message.isEmpty()) {
    if (!highlights) {
      painter.setPen(t.muted);
      painter.drawText(QRectF(parts_->plot->viewport()).adjusted(16, 16, -16, -16), Qt::AlignCenter | Qt::TextWordWrap,
                       parts_->message);
    }
    painter.restore();
    return;
  }
  painter.setFont(font());
  const Paint& paint = highlights ? paint_highlights : paint_marks;
  if (paint) paint(painter, now);
  painter.restore();
  if (highlights && parts_->plot->hasFocus() && !parts_->exporting) {
    painter.setPen(QPen(t.accent, 0));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(QRectF(parts_->plot->viewport()).adjusted(0.5, 0.5, -0.5, -0.5));
  }
  if (highlights && !parts_->box.isNull()) {
    painter.setPen(QPen(t.accent, 0, Qt::DashLine));
    painter.drawRect(parts_->box);
  }
  if (highlights || parts_->legend.empty()) return;
  draw_legend(painter, t, parts_->legend, now.area.left(), now.area.right());
}

void Chart::redraw() {
  make_room(parts_->plot->size());
  parts_->plot->replot(QCustomPlot::rpQueuedReplot);
}

void Chart::make_room(QSize plot_size) {
  const int lines = legend_lines(font(), parts_->legend, std::max(60.0, plot_size.width() - 90.0));
  parts_->plot->axisRect()->setMinimumMargins(QMargins(10, 8 + lines * (QFontMetrics(font()).height() + 2), 14, 10));
}

/// Titles stand in the middle of their axes: each may be as long as leaves both of its ends on the plot.
void Chart::fit_titles() {
  const QFontMetrics metrics(font());
  const auto fitting = [&](const QString& title, int room) { // the unit at its end stays
    const qsizetype unit = title.endsWith(QLatin1Char(')')) ? title.lastIndexOf(QStringLiteral(" (")) : title.size();
    const QString tail = unit > 0 ? title.mid(unit) : QString();
    const int remaining = std::max(20, room - metrics.horizontalAdvance(tail));
    return metrics.elidedText(title.left(title.size() - tail.size()), Qt::ElideRight, remaining) + tail;
  };
  constexpr int kEdge = 4;
  const QRect whole = parts_->plot->viewport();
  const QPoint middle = parts_->plot->axisRect()->rect().center();
  const int across = 2 * (std::min(middle.x() - whole.left(), whole.right() - middle.x()) - kEdge);
  const int down = 2 * (std::min(middle.y() - whole.top(), whole.bottom() - middle.y()) - kEdge);
  parts_->plot->xAxis->setLabel(fitting(parts_->x_look.title, across));
  parts_->plot->yAxis->setLabel(fitting(parts_->y_look.title, down));
}

void Chart::redraw_highlights() {
  if (parts_->plot->layer("highlights")->mode() == QCPLayer::lmBuffered) parts_->plot->layer("highlights")->replot();
}

void Chart::remember_range() {
  if (!parts_->clock.isValid()) parts_->clock.start();
  parts_->history.visit(parts_->shown(), double(parts_->clock.elapsed()) * 1e-3);
}

void Chart::step_zoom(int by) {
  const auto shown = parts_->history.step(by);
  if (!shown) return;
  parts_->plot->xAxis->setRange(shown->x_low, shown->x_high);
  parts_->plot->yAxis->setRange(shown->y_low, shown->y_high);
  zoomed_ = !(*shown == parts_->whole());
  parts_->kept.reset();
  redraw();
  if (range_changed) range_changed();
}

void Chart::fit() {
  parts_->kept.reset();
  show_all();
}

void Chart::show_all() {
  zoomed_ = false;
  parts_->plot->xAxis->setRange(parts_->x_extent);
  parts_->plot->yAxis->setRange(parts_->y_extent);
  remember_range();
  redraw();
  if (range_changed) range_changed();
}

void Chart::range_is_new() {
  zoomed_ = true;
  parts_->kept.reset();
  remember_range();
  redraw();
  if (range_changed) range_changed();
}

void Chart::show_range(double x_low, double x_high) {
  if (!(x_high > x_low)) return;
  parts_->plot->xAxis->setRange(x_low, x_high);
  range_is_new();
}

void Chart::zoom(double factor, QPointF pixel) {
  if (!parts_->x_look.zooms && !parts_->y_look.zooms) return;
  const QPointF center = value_at(pixel);
  if (parts_->x_look.zooms) parts_->plot->xAxis->scaleRange(factor, center.x());
  if (parts_->y_look.zooms) parts_->plot->yAxis->scaleRange(factor, center.y());
  range_is_new();
}

void Chart::pan(double x_share, double y_share) {
  if ((x_share == 0 || !parts_->x_look.zooms) && (y_share == 0 || !parts_->y_look.zooms)) return;
  const auto move = [](QCPAxis* axis, double share) {
    if (axis->scaleType() == QCPAxis::stLogarithmic)
      axis->setRange(axis->range().lower * std::pow(axis->range().upper / axis->range().lower, share),
                     axis->range().upper * std::pow(axis->range().upper / axis->range().lower, share));
    else
      axis->moveRange(axis->range().size() * share);
  };
  if (parts_->x_look.zooms) move(parts_->plot->xAxis, x_share);
  if (parts_->y_look.zooms) move(parts_->plot->yAxis, y_share);
  range_is_new();
}

void Chart::paint_to(QPaintDevice& device, QSize size) {
  make_room(size);
  QCPPainter painter;
  if (!painter.begin(&device)) return;
  parts_->exporting = true;
  painter.setMode(QCPPainter::pmVectorized);
  painter.setMode(QCPPainter::pmNoCaching);
  parts_->plot->toPainter(&painter, size.width(), size.height());
  painter.end();
  parts_->exporting = false;
}

} // namespace foretrain::gui
