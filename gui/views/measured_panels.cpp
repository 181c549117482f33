// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/measured_panels.h"

#include <algorithm>
#include <cmath>

#include <QHBoxLayout>
#include <QHeaderView>
#include <QHelpEvent>
#include <QLabel>
#include <QPainter>
#include <QPushButton>
#include <QToolTip>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "gui/model/numbers.h"
#include "gui/views/view.h"

namespace foretrain::gui {
namespace {

constexpr int kRowHeight = 11;      ///< pixels of a row, at least
constexpr std::size_t kLagRows = 2; ///< rows that the difference from the forecast takes
constexpr double kEdge = 4;

QTreeWidget* plain_list(QWidget* parent, const QStringList& titles, const QString& name) {
  auto* list = new QTreeWidget(parent);
  list->setHeaderLabels(titles);
  list->setAccessibleName(name);
  list->setRootIsDecorated(false);
  list->setAlternatingRowColors(true);
  return list;
}

void to_the_right(QTreeWidgetItem* item, int from) {
  for (int column = from; column < item->columnCount(); ++column)
    item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
}

QString error_of(double predicted, double measured) {
  return measured > 0 ? text_of(signed_percent((predicted / measured - 1) * 100)) : QStringLiteral("–");
}

} // namespace

RunTimelines::RunTimelines(QWidget* parent) : QWidget(parent) {
  setAccessibleName(QStringLiteral("Step as predicted and as measured, on one scale"));
}

void RunTimelines::set_theme(const Theme& theme) {
  theme_ = &theme;
  update();
}

void RunTimelines::set_timeline(RunTimeline timeline) {
  timeline_ = std::move(timeline);
  updateGeometry();
  update();
}

std::size_t RunTimelines::rows_of(const RunLane& lane) {
  return std::max<std::size_t>(1, lane.rows.size()) + (lane.lags.empty() ? 0 : kLagRows);
}

QSize RunTimelines::minimumSizeHint() const {
  double height = 2 * kEdge + fontMetrics().height();
  for (const RunLane& lane : timeline_.lanes) height += double(rows_of(lane)) * kRowHeight + kEdge;
  return {200, static_cast<int>(height)};
}

double RunTimelines::label_width() const {
  double widest = fontMetrics().horizontalAdvance(lag_title());
  for (const RunLane& lane : timeline_.lanes)
    widest = std::max(widest, double(fontMetrics().horizontalAdvance(QString::fromStdString(lane.title))));
  return std::min(widest + 12, width() * 0.3);
}

QString RunTimelines::lag_title() {
  return QStringLiteral("later than promised");
}

QRectF RunTimelines::row_area(std::size_t lane, std::size_t row) const {
  std::size_t rows = 0;
  for (const RunLane& each : timeline_.lanes) rows += rows_of(each);
  const double room = height() - 2 * kEdge - fontMetrics().height() - kEdge * double(timeline_.lanes.size());
  const double each = std::min(24.0, std::max(3.0, room / double(std::max<std::size_t>(1, rows))));
  double top = kEdge;
  for (std::size_t i = 0; i < lane; ++i) top += each * double(rows_of(timeline_.lanes[i])) + kEdge;
  if (!timeline_.lanes[lane].lags.empty()) row += kLagRows;
  const double left = label_width();
  return {left, top + each * double(row), width() - left - kEdge, each - 1};
}

QRectF RunTimelines::lag_area(std::size_t lane) const {
  const QRectF first = row_area(lane, 0);
  const double each = first.height() + 1;
  return {first.left(), first.top() - each * double(kLagRows), first.width(), each * double(kLagRows) - 2};
}

void RunTimelines::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.fillRect(rect(), theme_->base);
  if (timeline_.end <= 0) {
    painter.setPen(theme_->muted);
    painter.drawText(rect(), Qt::AlignCenter | Qt::TextWordWrap,
                     QStringLiteral("Select a run: its step as predicted and as measured appears here"));
    return;
  }
  const double left = label_width();
  const double scale = (width() - left - kEdge) / timeline_.end;
  const auto label = [&](const QString& text, const QRectF& area, const QColor& color) {
    painter.setPen(color);
    const QRectF place(2, area.center().y() - fontMetrics().height() / 2.0, left - 8, fontMetrics().height());
    painter.drawText(place, Qt::AlignRight | Qt::AlignVCenter,
                     fontMetrics().elidedText(text, Qt::ElideLeft, static_cast<int>(left) - 8));
  };
  double bottom = 0;
  for (std::size_t l = 0; l < timeline_.lanes.size(); ++l) {
    const RunLane& lane = timeline_.lanes[l];
    const QRectF first = row_area(l, 0);
    const QRectF whole(first.topLeft(), row_area(l, std::max<std::size_t>(1, lane.rows.size()) - 1).bottomRight());
    painter.fillRect(whole, lane.measured ? theme_->window : theme_->raised);
    label(QString::fromStdString(lane.title), whole, lane.measured ? theme_->text : theme_->muted);
    for (std::size_t r = 0; r < lane.rows.size(); ++r) {
      const QRectF area = row_area(l, r);
      for (const RunBar& bar : lane.rows[r])
        painter.fillRect(
            QRectF(left + bar.start * scale, area.top(), std::max(0.5, (bar.end - bar.start) * scale), area.height()),
            color_of(*theme_, static_cast<TimePart>(bar.part)));
    }
    if (!lane.lags.empty()) {
      label(lag_title(), lag_area(l), theme_->muted);
      paint_lags(painter, lane, lag_area(l), scale);
    }
    bottom = whole.bottom();
  }
  painter.setPen(theme_->muted);
  const double under = bottom + kEdge + fontMetrics().ascent();
  painter.drawText(QPointF(left, under), QStringLiteral("0"));
  const QString end = text_of(short_seconds(timeline_.end));
  painter.drawText(QPointF(width() - kEdge - fontMetrics().horizontalAdvance(end), under), end);
}

/// Above the line: later than promised; below: earlier. One height for all ranks.
void RunTimelines::paint_lags(QPainter& painter, const RunLane& lane, const QRectF& area, double scale) const {
  double late = 0;
  double early = 0;
  for (const RunLane& each : timeline_.lanes)
    for (const RunLag& lag : each.lags) {
      late = std::max(late, lag.seconds);
      early = std::max(early, -lag.seconds);
    }
  if (late + early <= 0) return;
  const double zero = area.top() + area.height() * late / (late + early);
  double x = area.left();
  for (const RunLag& lag : lane.lags) {
    const double to = area.left() + lag.at * scale;
    const double height = lag.seconds / (late + early) * area.height();
    painter.fillRect(QRectF(QPointF(x, zero - height), QPointF(std::max(x + 0.5, to), zero)).normalized(),
                     lag.seconds > 0 ? theme_->bad : theme_->good);
    x = to;
  }
  painter.setPen(QPen(theme_->line, 0));
  painter.drawLine(QPointF(area.left(), zero), QPointF(area.right(), zero));
  const RunLag& last = lane.lags.back();
  const QString text = (last.seconds > 0 ? QStringLiteral("+") : QString()) + text_of(short_seconds(last.seconds));
  const double wide = fontMetrics().horizontalAdvance(text);
  const double from = std::min(x + 4, area.right() - wide);
  QColor back = theme_->base;
  back.setAlphaF(0.85F);
  painter.fillRect(QRectF(from - 2, area.center().y() - fontMetrics().height() / 2.0, wide + 4, fontMetrics().height()),
                   back);
  painter.setPen(theme_->text);
  painter.drawText(QPointF(from, area.center().y() - fontMetrics().height() / 2.0 + fontMetrics().ascent()), text);
}

bool RunTimelines::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip || timeline_.end <= 0) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  const QString text = text_at(help->pos());
  if (text.isEmpty())
    QToolTip::hideText();
  else
    QToolTip::showText(help->globalPos(), text, this);
  return true;
}

QString RunTimelines::text_at(QPoint at) const {
  const double left = label_width();
  const double time = (at.x() - left) / (width() - left - kEdge) * timeline_.end;
  for (std::size_t l = 0; l < timeline_.lanes.size(); ++l) {
    const RunLane& lane = timeline_.lanes[l];
    if (!lane.lags.empty() && lag_area(l).contains(at)) {
      const auto lag =
          std::find_if(lane.lags.begin(), lane.lags.end(), [time](const RunLag& r) { return r.at >= time; });
      if (lag == lane.lags.end()) return {};
      return QStringLiteral("%1: %2\ndone %3 %4 than promised")
          .arg(text_of(lane.title), text_of(lag->name), text_of(short_seconds(std::abs(lag->seconds))),
               lag->seconds > 0 ? QStringLiteral("later") : QStringLiteral("earlier"));
    }
    for (std::size_t r = 0; r < lane.rows.size(); ++r) {
      if (!row_area(l, r).contains(at)) continue;
      for (const RunBar& bar : lane.rows[r])
        if (time >= bar.start && time <= bar.end)
          return QStringLiteral("%1: %2\n%3 from %4")
              .arg(text_of(lane.title), text_of(bar.name), text_of(short_seconds(bar.end - bar.start)),
                   text_of(short_seconds(bar.start)));
    }
  }
  return {};
}

CalibrationPanel::CalibrationPanel(QWidget* parent)
    : QWidget(parent), title_(new QLabel(this)),
      fits_(plain_list(this,
                       {QStringLiteral("Run"), QStringLiteral("Measured"), QStringLiteral("Before"),
                        QStringLiteral("Error"), QStringLiteral("After"), QStringLiteral("Error")},
                       QStringLiteral("Runs before and after"))),
      ranks_(plain_list(this,
                        {QStringLiteral("Layout"), QStringLiteral("Rank"), QStringLiteral("was"),
                         QStringLiteral("Step"), QStringLiteral("Change")},
                        QStringLiteral("Ranking before and after"))),
      accept_(new QPushButton(QStringLiteral("Use this calibration"), this)),
      discard_(new QPushButton(QStringLiteral("Discard"), this)) {
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  title_->setWordWrap(true);
  layout->addWidget(title_);
  auto* lists = new QHBoxLayout;
  lists->addWidget(fits_, 1);
  lists->addWidget(ranks_, 1);
  layout->addLayout(lists, 1);
  auto* buttons = new QHBoxLayout;
  buttons->addStretch(1);
  buttons->addWidget(discard_);
  buttons->addWidget(accept_);
  layout->addLayout(buttons);
  connect(accept_, &QPushButton::clicked, this, [this] { accepted(); });
  connect(discard_, &QPushButton::clicked, this, [this] { discarded(); });
}

void CalibrationPanel::show_change(const QString& device, const std::vector<Fit>& fits,
                                   const std::vector<RankChange>& changes, const std::vector<QString>& layouts,
                                   const QString& note) {
  title_->setText(QStringLiteral("<b>A calibration of “%1” from these runs.</b> Nothing is changed yet. The runs are "
                                 "what it was fitted to: others tell how good it is. %2")
                      .arg(device.toHtmlEscaped(), note.toHtmlEscaped()));
  fits_->clear();
  for (const Fit& fit : fits) {
    auto* item = new QTreeWidgetItem(fits_, {QString::number(fit.run), text_of(short_seconds(fit.measured)),
                                             text_of(short_seconds(fit.before)), error_of(fit.before, fit.measured),
                                             text_of(short_seconds(fit.after)), error_of(fit.after, fit.measured)});
    to_the_right(item, 1);
  }
  ranks_->clear();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const RankChange& change = changes[i];
    auto* item = new QTreeWidgetItem(ranks_, {layouts[i], QString::number(change.rank + 1),
                                              QString::number(change.row + 1), text_of(short_seconds(change.after_s)),
                                              error_of(change.after_s, change.before_s)});
    to_the_right(item, 1);
  }
  ranks_->setVisible(!changes.empty());
  for (QTreeWidget* list : {fits_, ranks_})
    for (int column = 0; column < list->columnCount(); ++column) list->resizeColumnToContents(column);
  accept_->setFocus();
}

} // namespace foretrain::gui
