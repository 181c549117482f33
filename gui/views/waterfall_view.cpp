// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>

#include <QPainter>

#include "core/spec/names.h"
#include "gui/model/numbers.h"
#include "gui/plot/chart.h"
#include "gui/views/all.h"

namespace foretrain::gui {
namespace {

QString part_name(TimePart part) {
  const std::string_view id = id_of(part);
  return QString::fromUtf8(id.data(), static_cast<qsizetype>(id.size()));
}

/// Where the step's time goes, part by part, with the reference's parts beside them.
class WaterfallView final : public View {
public:
  explicit WaterfallView(ViewContext context)
      : View(context), chart_(add_chart(add_column(), QStringLiteral("Parts of the step time"))) {
    chart_->paint_marks = [this](QPainter& p, const Frame& f) { paint_bars(p, f); };
    chart_->paint_highlights = [this](QPainter& p, const Frame& f) { paint_card(p, f); };
    chart_->hovered = [this](QPointF at) {
      const double bar = std::round(chart_->value_at(at).x());
      show_card(chart_->frame().area.contains(at) ? static_cast<int>(bar) : -1, at);
    };
    chart_->left = [this] { show_card(-1, {}); };
    chart_->key_pressed = [this](int key) {
      if (steps_.empty() || (key != Qt::Key_Left && key != Qt::Key_Right)) return false;
      const int next = bar_ < 0 ? 0 : bar_ + (key == Qt::Key_Right ? 1 : -1);
      const int bar = std::clamp(next, 0, static_cast<int>(steps_.size()));
      const Frame frame = chart_->frame();
      show_card(bar, {frame.x(bar), frame.area.center().y()});
      return true;
    };
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "part,seconds,reference_seconds\n";
    for (const Step& step : steps_)
      text += part_name(step.part).toStdString() + "," + csv_value(step.seconds) + "," +
              (reference_ >= 0 ? csv_value(step.reference) : "") + "\n";
    return text;
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & (kSelectionChanged | kRowsChanged | kDetailChanged | kPinsChanged)) == 0) return;
    const int row = session().current();
    reference_ = row < 0 ? -1 : session().reference_for(row);
    const auto mine = prediction_of(row);
    const auto theirs = prediction_of(reference_);
    steps_.clear();
    if (!theirs) reference_ = -1;
    if (mine)
      for (int part = 0; part < kTimeParts; ++part) {
        const double seconds = mine->time[static_cast<std::size_t>(part)].value;
        const double other = theirs ? theirs->time[static_cast<std::size_t>(part)].value : 0;
        if (seconds > 0 || other > 0) steps_.push_back({static_cast<TimePart>(part), seconds, other});
      }
    chart_->set_message(!steps_.empty() ? QString()
                        : row < 0       ? QStringLiteral("Select a layout to see where its time goes")
                                        : QStringLiteral("Working it out …"));
    if (mine) show_axes(*mine, theirs ? &*theirs : nullptr, row);
    bar_ = -1;
    chart_->setAccessibleDescription(row_title(row));
    chart_->redraw();
  }

private:
  struct Step {
    TimePart part = TimePart::compute;
    double seconds = 0;
    double reference = 0;
  };

  std::optional<Prediction> prediction_of(int row) {
    if (row < 0) return std::nullopt;
    const auto detail = session().detail(row);
    const Row& entry = session().rows()[static_cast<std::size_t>(row)];
    if (entry.prediction) return *entry.prediction;
    if (detail && detail->prediction.step_time.value > 0) return detail->prediction;
    return std::nullopt;
  }

  void show_axes(const Prediction& mine, const Prediction* theirs, int row) {
    total_ = mine.step_time.value;
    reference_total_ = theirs ? theirs->step_time.value : 0;
    AxisLook x;
    for (std::size_t i = 0; i < steps_.size(); ++i) x.ticks.emplace_back(double(i), part_name(steps_[i].part));
    x.ticks.emplace_back(double(steps_.size()), QStringLiteral("step"));
    x.zooms = false;
    x.title = theirs ? QStringLiteral("#%1 (left) against #%2 (right, hatched)").arg(row + 1).arg(reference_ + 1)
                     : QStringLiteral("#%1").arg(row + 1);
    AxisLook y;
    y.title = QStringLiteral("time on the critical path (s)");
    y.text = [](double value) { return QString::fromStdString(tick_number(value)); };
    y.zooms = false;
    chart_->set_axes(x, y);
    chart_->set_extent(-0.6, double(steps_.size()) + 0.6, 0, std::max(total_, reference_total_) * 1.12);
  }

  /// What a bar stands for, at a place of the plot; -1: nothing.
  void show_card(int bar, QPointF at) {
    bar_ = bar;
    pointer_ = at;
    chart_->setAccessibleDescription(row_title(session().current()) + QStringLiteral("\n") +
                                     card().join(QStringLiteral("\n")));
    chart_->redraw_highlights();
  }

  [[nodiscard]] QStringList card() const {
    if (bar_ < 0 || bar_ > static_cast<int>(steps_.size()) || steps_.empty()) return {};
    const bool whole = bar_ == static_cast<int>(steps_.size());
    const Step step = whole ? Step{TimePart::other, total_, reference_total_} : steps_[static_cast<std::size_t>(bar_)];
    QStringList lines = {QStringLiteral("%1: %2").arg(whole ? QStringLiteral("step") : part_name(step.part),
                                                      text_of(short_seconds(step.seconds)))};
    if (!whole)
      lines[0] += QStringLiteral(", %1 % of the step").arg(text_of(short_number(step.seconds / total_ * 100)));
    if (reference_ < 0) return lines;
    const double more = step.seconds - step.reference;
    lines << QStringLiteral("#%1: %2, here %3 %4")
                 .arg(reference_ + 1)
                 .arg(text_of(short_seconds(step.reference)), text_of(short_seconds(std::abs(more))),
                      more < 0 ? QStringLiteral("less") : QStringLiteral("more"));
    return lines;
  }

  void paint_card(QPainter& painter, const Frame& frame) {
    if (const QStringList lines = card(); !lines.empty() && frame.area.contains(pointer_))
      draw_card(painter, theme(), frame.area, pointer_, lines);
  }

  void paint_bars(QPainter& painter, const Frame& frame) {
    const QFontMetricsF metrics(painter.font());
    const auto bar = [&](double center, double half, double from, double to, const QBrush& brush) {
      const QRectF box(QPointF(frame.x(center - half), frame.y(to)), QPointF(frame.x(center + half), frame.y(from)));
      painter.fillRect(box, brush);
      painter.setPen(QPen(theme().line, 0));
      painter.setBrush(Qt::NoBrush);
      painter.drawRect(box);
      return box;
    };
    const double half = reference_ >= 0 ? 0.2 : 0.34;
    double at = 0;
    double other = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const QColor color = color_of(theme(), step.part);
      const double x = double(i) - (reference_ >= 0 ? half : 0);
      const QRectF box = bar(x, half, at, at + step.seconds, color);
      const QString text = QString::fromStdString(short_seconds(step.seconds));
      painter.setPen(theme().text);
      painter.drawText(QPointF(box.center().x() - metrics.horizontalAdvance(text) / 2, box.top() - 4), text);
      if (reference_ >= 0) bar(double(i) + half, half, other, other + step.reference, QBrush(color, Qt::BDiagPattern));
      at += step.seconds;
      other += step.reference;
      painter.setPen(QPen(theme().muted, 0, Qt::DotLine));
      painter.drawLine(frame.at(x + half, at), frame.at(double(i) + 1 - half * (reference_ >= 0 ? 2 : 1), at));
    }
    const double x = double(steps_.size()) - (reference_ >= 0 ? half : 0);
    const QRectF box = bar(x, half, 0, total_, theme().accent);
    if (reference_ >= 0)
      bar(double(steps_.size()) + half, half, 0, reference_total_, QBrush(theme().accent, Qt::BDiagPattern));
    QString text = QString::fromStdString(short_seconds(total_));
    if (reference_ >= 0 && reference_total_ > 0)
      text +=
          QStringLiteral(" (%1)").arg(QString::fromStdString(signed_percent((total_ / reference_total_ - 1) * 100)));
    painter.setPen(theme().text);
    const double width = metrics.horizontalAdvance(text);
    painter.drawText(QPointF(std::min(box.center().x() - width / 2, frame.area.right() - width), box.top() - 4), text);
  }

  Chart* chart_;
  std::vector<Step> steps_;
  int reference_ = -1;
  double total_ = 0;
  double reference_total_ = 0;
  int bar_ = -1; ///< that is told of: a part, or the step behind them
  QPointF pointer_;
};

} // namespace

std::unique_ptr<View> make_waterfall_view(ViewContext context) {
  return std::make_unique<WaterfallView>(context);
}

} // namespace foretrain::gui
