// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <optional>

#include <QPainter>

#include "gui/model/numbers.h"
#include "gui/plot/chart.h"
#include "gui/views/all.h"
#include "gui/views/timeline_data.h"
#include "gui/views/timeline_paint.h"

namespace foretrain::gui {
namespace {

constexpr double kMemoryRows = 1.6; ///< height of the memory curves, in stages
constexpr double kMap = 0.55;       ///< height of the minimap, in stages

QString lane_name(Lane lane) {
  const std::string_view name = name_of(lane);
  return QString::fromUtf8(name.data(), static_cast<qsizetype>(name.size()));
}

/// The pipeline's schedule as replayed: a row per stage, compute above, transfers below; memory over time under them.
class TimelineView final : public View {
public:
  explicit TimelineView(ViewContext context)
      : View(context), chart_(add_chart(add_column(), QStringLiteral("Timeline of one step"))) {
    chart_->paint_marks = [this](QPainter& p, const Frame& f) { paint_lanes(p, f); };
    chart_->paint_highlights = [this](QPainter& p, const Frame& f) { paint_over(p, f); };
    connect_mouse();
  }

  void frame_selection() override {
    const int label = chosen_ >= 0 ? chosen_ : hovered_label();
    if (label < 0) return;
    double low = timeline_.end;
    double high = 0;
    for (const auto& stage : timeline_.stages)
      for (const Span& span : stage.passes)
        if (span.label == label) {
          low = std::min(low, span.start);
          high = std::max(high, span.end);
        }
    if (high > low) chart_->show_range(low - (high - low) * 0.05, high + (high - low) * 0.05);
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "stage,lane,name,micro_batch,layer,start_s,end_s\n";
    if (!detail_ || !detail_->simulation) return text;
    for (const TimelineEvent& event : detail_->simulation->events)
      text += std::to_string(event.stage) + "," + std::string(name_of(event.lane)) + "," + csv_text(event.name) + "," +
              std::to_string(event.micro_batch) + "," + std::to_string(event.layer) + "," + csv_value(event.start) +
              "," + csv_value(event.end) + "\n";
    return text;
  }

  void paint_to(QPaintDevice& device, QSize size) override {
    room_ = size.height(); // a plot that was never shown has none
    View::paint_to(device, size);
    room_ = 0;
    if (!timeline_.stages.empty()) show_axes();
  }

protected:
  void resizeEvent(QResizeEvent* event) override {
    View::resizeEvent(event);
    if (!timeline_.stages.empty()) show_axes(); // there may be room for what stages wait
  }
  void refresh(Changes changes) override {
    if ((changes & kMomentChanged) != 0) chart_->redraw_highlights();
    if ((changes & (kSelectionChanged | kRowsChanged | kDetailChanged)) == 0) return;
    const int row = session().current();
    auto detail = session().detail(row);
    if (detail != detail_ || changes == kEverything) {
      detail_ = std::move(detail);
      hover_.reset();
      timeline_ = detail_ && detail_->simulation ? timeline_of(*detail_->simulation, splits_backward(detail_->layout))
                                                 : Timeline();
    }
    chart_->set_message(
        row < 0    ? QStringLiteral("Select a layout to see its schedule")
        : !detail_ ? QStringLiteral("Replaying op by op …")
        : timeline_.stages.empty()
            ? QString::fromStdString(detail_->problem.empty() ? "This layout cannot run" : detail_->problem)
            : QString());
    if (!timeline_.stages.empty()) show_axes();
    chart_->setAccessibleDescription(row_title(row));
    chart_->redraw();
    chart_->redraw_highlights();
  }

private:
  struct Hover {
    int stage = 0;
    int lane = -1; ///< -1: compute
    Span span;
  };

  void connect_mouse() {
    chart_->hovered = [this](QPointF at) {
      pointer_ = at;
      const QPointF value = chart_->value_at(at);
      hover_ = find(value);
      chart_->redraw_highlights();
    };
    chart_->left = [this] {
      hover_.reset();
      chart_->redraw_highlights();
    };
    chart_->clicked = [this](QPointF, Qt::KeyboardModifiers) {
      chosen_ = hovered_label();
      chart_->redraw_highlights();
    };
    chart_->pressed = [this](QPointF at, Qt::KeyboardModifiers keys) {
      ruler_ = (keys & Qt::ShiftModifier) != 0;
      on_map_ = !ruler_ && chart_->value_at(at).y() < -0.05;
      ruler_from_ = ruler_to_ = chart_->value_at(at).x();
      if (on_map_) move_window(at);
      return ruler_ || on_map_;
    };
    chart_->dragged = [this](QPointF at) {
      if (on_map_) return move_window(at);
      ruler_to_ = chart_->value_at(at).x();
      chart_->redraw_highlights();
    };
    chart_->released = [this](QPointF) {
      ruler_ = on_map_ = false;
      chart_->redraw_highlights();
    };
    chart_->range_changed = [this] { chart_->redraw_highlights(); };
    chart_->key_pressed = [this](int key) {
      if (key == Qt::Key_Comma || key == Qt::Key_Period) {
        chosen_ = std::max(0, chosen_ + (key == Qt::Key_Period ? 1 : -1));
        chart_->redraw_highlights();
        return true;
      }
      // By place on the keyboard, as an extra: these letters are not commands.
      const QPointF center = chart_->frame().area.center();
      if (key == Qt::Key_W) return chart_->zoom(0.8, center), true;
      if (key == Qt::Key_S) return chart_->zoom(1.25, center), true;
      if (key == Qt::Key_A) return chart_->pan(-0.1, 0), true;
      if (key == Qt::Key_D) return chart_->pan(0.1, 0), true;
      return false;
    };
  }

  /// The minimap: the pointer is the middle of what is shown.
  void move_window(QPointF at) {
    const Frame frame = chart_->frame();
    const double share = (at.x() - frame.area.left()) / std::max(1.0, frame.area.width());
    const double center = share * timeline_.end;
    chart_->show_range(center - frame.shown.width() / 2, center + frame.shown.width() / 2);
  }

  [[nodiscard]] int hovered_label() const { return hover_ ? hover_->span.label : -1; }

  [[nodiscard]] double lane_top(std::size_t stage, int lane) const {
    if (lane < 0) return double(stage) + 0.06;
    return double(stage) + 0.6 + 0.34 * double(lane) / double(std::max<std::size_t>(1, timeline_.lanes.size()));
  }
  [[nodiscard]] double lane_bottom(std::size_t stage, int lane) const {
    if (lane < 0) return double(stage) + (timeline_.lanes.empty() ? 0.94 : 0.58);
    return lane_top(stage, lane + 1) - 0.01;
  }

  [[nodiscard]] std::optional<Hover> find(QPointF value) const {
    const auto stage = static_cast<std::ptrdiff_t>(std::floor(value.y()));
    if (stage < 0 || stage >= static_cast<std::ptrdiff_t>(timeline_.stages.size())) return std::nullopt;
    const auto s = static_cast<std::size_t>(stage);
    for (int lane = -1; lane < static_cast<int>(timeline_.lanes.size()); ++lane) {
      if (value.y() < lane_top(s, lane) || value.y() > lane_bottom(s, lane)) continue;
      const auto& spans =
          lane < 0 ? timeline_.stages[s].passes : timeline_.stages[s].beside[static_cast<std::size_t>(lane)];
      const int found = span_at(spans, value.x());
      if (found >= 0) return Hover{static_cast<int>(stage), lane, spans[static_cast<std::size_t>(found)]};
    }
    return std::nullopt;
  }

  [[nodiscard]] QColor shade(int kind) const { return pass_color(theme(), kind); }
  static QString kind_name(PassKind kind) {
    switch (kind) {
    case PassKind::forward:
      return QStringLiteral("F forward");
    case PassKind::backward:
      return QStringLiteral("B backward");
    case PassKind::input:
      return QStringLiteral("I input gradient");
    case PassKind::weight:
      return QStringLiteral("W weight gradient");
    case PassKind::recompute:
      return QStringLiteral("R recomputed");
    case PassKind::step:
      return QStringLiteral("S step end");
    case PassKind::transfer:
      return QStringLiteral("transfers");
    }
    return {};
  }

  void show_axes() {
    const auto stages = double(timeline_.stages.size());
    AxisLook x;
    const bool seconds = timeline_.end >= 10;
    x.title = seconds ? QStringLiteral("time in the step (s)") : QStringLiteral("time in the step (ms)");
    if (timeline_.apart())
      x.title += QStringLiteral(" · each stage’s own step takes %1").arg(text_of(short_seconds(timeline_.step)));
    const double forecast = detail_->prediction.step_time.value;
    if (const double more = forecast - detail_->simulation->step_time.value; more > 1e-3 * forecast)
      x.title += QStringLiteral(" · the forecast of %1 adds %2 for slower ranks and the host")
                     .arg(text_of(short_seconds(forecast)), text_of(short_seconds(more)));
    x.text = [seconds](double value) { return QString::fromStdString(tick_number(seconds ? value : value * 1e3)); };
    AxisLook y;
    y.reversed = true;
    y.zooms = false;
    const std::size_t step = std::max<std::size_t>(1, timeline_.stages.size() / 20);
    const double row = double(room_ > 0 ? room_ : chart_->height()) / (stages + kMemoryRows + kMap + 2);
    for (std::size_t i = 0; i < timeline_.stages.size(); i += step) {
      QString name = QStringLiteral("stage %1").arg(i);
      if (const double idle = timeline_.stages[i].idle; row > 2.2 * fontMetrics().height())
        name += QStringLiteral("\nno compute %1, %2 %")
                    .arg(text_of(short_seconds(idle)), text_of(short_number(idle / timeline_.step * 100)));
      y.ticks.emplace_back(double(i) + 0.5, name);
    }
    y.ticks.emplace_back(stages + kMemoryRows / 2 + 0.1, QStringLiteral("memory"));
    chart_->set_axes(x, y);
    chart_->set_extent(-timeline_.end * 0.005, timeline_.end * 1.01, -kMap - 0.15, stages + kMemoryRows + 0.2);
    std::vector<LegendEntry> legend;
    for (const PassKind kind : kPassKinds)
      if (timeline_.kinds[static_cast<std::size_t>(kind)])
        legend.push_back({shade(static_cast<int>(kind)), kind_name(kind), LegendEntry::Shape::box});
    if (timeline_.apart())
      legend.push_back({theme().line, QStringLiteral("hatched: steps before and after"), LegendEntry::Shape::box});
    chart_->set_legend(std::move(legend));
  }

  void paint_lanes(QPainter& painter, const Frame& frame) {
    if (timeline_.stages.empty()) return;
    painter.setClipRect(frame.area);
    painter.setRenderHint(QPainter::Antialiasing, false);
    for (std::size_t s = 0; s < timeline_.stages.size(); ++s) {
      if (timeline_.apart()) paint_other_steps(painter, frame, s);
      paint_lane(painter, frame, timeline_.stages[s].passes, lane_top(s, -1), lane_bottom(s, -1), true);
      for (std::size_t lane = 0; lane < timeline_.lanes.size(); ++lane)
        paint_lane(painter, frame, timeline_.stages[s].beside[lane], lane_top(s, static_cast<int>(lane)),
                   lane_bottom(s, static_cast<int>(lane)), false);
    }
    paint_memory(painter, frame, theme(), *detail_->simulation, memory_top(), memory_top() + kMemoryRows, capacity());
    paint_map(painter, frame);
    painter.setClipping(false);
  }

  /// Before and after a stage's own step it works on the steps beside it.
  void paint_other_steps(QPainter& painter, const Frame& frame, std::size_t stage) const {
    const double begin = timeline_.stages[stage].begin;
    const QRectF row(QPointF(frame.area.left(), frame.y(lane_top(stage, -1))),
                     QPointF(frame.area.right(), frame.y(lane_bottom(stage, -1))));
    QRectF before = row;
    before.setRight(frame.x(begin));
    QRectF after = row;
    after.setLeft(frame.x(begin + timeline_.step));
    for (const QRectF& other : {before.intersected(row), after.intersected(row)})
      if (other.isValid()) painter.fillRect(other, QBrush(theme().line, Qt::BDiagPattern));
  }

  void paint_lane(QPainter& painter, const Frame& frame, const std::vector<Span>& spans, double top, double bottom,
                  bool letters) {
    const double pixel = frame.shown.width() / std::max(1.0, frame.area.width());
    const double y0 = std::round(frame.y(top));
    const double y1 = std::max(y0 + 1, std::round(frame.y(bottom)));
    const QFontMetricsF metrics(painter.font());
    for (const Box& box : visible_boxes(spans, frame.shown.left(), frame.shown.right(), pixel)) {
      const double x0 = frame.x(box.start);
      const double x1 = std::max(x0 + 1, frame.x(box.end));
      const QColor fill = shade(box.kind);
      fill_box(painter, theme(), box, QRectF(x0, y0, x1 - x0, y1 - y0));
      if (!letters || box.source < 0 || x1 - x0 < 4) continue;
      painter.setPen(QPen(theme().base, 0));
      painter.drawLine(QPointF(x1, y0), QPointF(x1, y1));
      const QString text = box.label >= 0 ? QString(QStringLiteral("FBIWRS ")[box.kind]) + QString::number(box.label)
                                          : QStringLiteral("S");
      if (x1 - x0 < metrics.horizontalAdvance(text) + 4 || y1 - y0 < metrics.ascent()) continue;
      painter.setPen(text_on(fill));
      painter.drawText(QRectF(x0, y0, x1 - x0, y1 - y0), Qt::AlignCenter, text);
    }
  }

  [[nodiscard]] double memory_top() const { return double(timeline_.stages.size()) + 0.15; }
  /// Bytes of the device, 0: not known.
  [[nodiscard]] double capacity() const {
    const DeviceSpec& device = session().results().study.cluster.device;
    const auto bytes = device.usable_memory ? device.usable_memory : device.memory;
    return bytes ? double(bytes->value) : 0;
  }

  /// The whole step above the lanes; the part that is shown is framed by the highlights.
  void paint_map(QPainter& painter, const Frame& frame) {
    const double top = frame.y(-kMap - 0.1);
    const double bottom = frame.y(-0.08);
    painter.fillRect(QRectF(frame.area.left(), top, frame.area.width(), bottom - top), theme().window);
    const double height = (bottom - top) / double(std::max<std::size_t>(1, timeline_.stages.size()));
    const double scale = frame.area.width() / timeline_.end;
    for (std::size_t s = 0; s < timeline_.stages.size(); ++s)
      for (const Box& box : visible_boxes(timeline_.stages[s].passes, 0, timeline_.end, 1 / scale))
        fill_box(painter, theme(), box,
                 QRectF(frame.area.left() + box.start * scale, top + height * double(s),
                        std::max(1.0, (box.end - box.start) * scale), std::max(1.0, height)));
  }

  void paint_over(QPainter& painter, const Frame& frame) {
    if (timeline_.stages.empty()) return;
    painter.setClipRect(frame.area);
    const double scale = frame.area.width() / timeline_.end;
    const double top = frame.y(-kMap - 0.1);
    painter.setPen(QPen(theme().text, 1.5));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(QRectF(frame.area.left() + std::max(0.0, frame.shown.left()) * scale, top,
                            (std::min(timeline_.end, frame.shown.right()) - std::max(0.0, frame.shown.left())) * scale,
                            frame.y(-0.08) - top));
    const int label = hovered_label() >= 0 ? hovered_label() : chosen_;
    if (label >= 0) {
      for (std::size_t s = 0; s < timeline_.stages.size(); ++s)
        for (const Span& span : timeline_.stages[s].passes) {
          if (span.label != label || span.end < frame.shown.left() || span.start > frame.shown.right()) continue;
          const QRectF box(frame.at(span.start, lane_top(s, -1)), frame.at(span.end, lane_bottom(s, -1)));
          painter.drawRect(box.width() < 3 ? box.adjusted(0, 0, 3 - box.width(), 0) : box);
        }
      const auto middle = [&](std::size_t stage) { return (lane_top(stage, -1) + lane_bottom(stage, -1)) / 2; };
      for (const Hop& hop : hops_of(timeline_, label))
        if (hop.arrived >= frame.shown.left() && hop.left <= frame.shown.right())
          paint_arrow(painter, frame.at(hop.left, middle(hop.from_stage)), frame.at(hop.arrived, middle(hop.to_stage)));
    }
    if (ruler_) paint_ruler(painter, frame);
    if (const double now = session().moment(); now >= 0) {
      painter.setPen(QPen(theme().bad, 1.5));
      painter.drawLine(QPointF(frame.x(now), frame.area.top()), QPointF(frame.x(now), frame.area.bottom()));
    }
    painter.setClipping(false);
    if (hover_ && !ruler_) paint_hover(painter, frame);
    if (!hover_ && !ruler_ && frame.area.width() > 900) {
      painter.setPen(theme().muted);
      painter.drawText(frame.area.adjusted(6, 0, -6, -4), Qt::AlignRight | Qt::AlignBottom,
                       QStringLiteral("wheel zooms · drag moves · Shift+drag measures · F frames · 0 all · P plays"));
    }
  }

  void paint_ruler(QPainter& painter, const Frame& frame) const {
    QColor band = theme().accent;
    band.setAlphaF(0.2F);
    const QRectF area(QPointF(frame.x(std::min(ruler_from_, ruler_to_)), frame.area.top()),
                      QPointF(frame.x(std::max(ruler_from_, ruler_to_)), frame.area.bottom()));
    painter.fillRect(area, band);
    painter.setPen(theme().text);
    painter.drawText(area.center(), QString::fromStdString(short_seconds(std::abs(ruler_to_ - ruler_from_))));
  }

  void paint_hover(QPainter& painter, const Frame& frame) const {
    const Span& span = hover_->span;
    const TimelineEvent& event = detail_->simulation->events[static_cast<std::size_t>(span.source)];
    QStringList lines;
    if (hover_->lane < 0)
      lines << QStringLiteral("stage %1, %2%3")
                   .arg(hover_->stage)
                   .arg(kind_name(static_cast<PassKind>(span.kind)),
                        span.label >= 0 ? QStringLiteral(", micro-batch %1").arg(span.label) : QString());
    else
      lines << QStringLiteral("stage %1, %2: %3")
                   .arg(hover_->stage)
                   .arg(lane_name(event.lane), QString::fromStdString(event.name));
    lines << QStringLiteral("%1, from %2")
                 .arg(QString::fromStdString(short_seconds(span.end - span.start)),
                      QString::fromStdString(short_seconds(span.start)));
    draw_card(painter, theme(), frame.area, pointer_, lines);
  }

  Chart* chart_;
  std::shared_ptr<const Detail> detail_;
  Timeline timeline_;
  std::optional<Hover> hover_;
  QPointF pointer_;
  int chosen_ = -1; ///< micro-batch
  int room_ = 0;    ///< pixels of an export; 0: those of the window
  bool ruler_ = false;
  bool on_map_ = false;
  double ruler_from_ = 0;
  double ruler_to_ = 0;
};

} // namespace

std::unique_ptr<View> make_timeline_view(ViewContext context) {
  return std::make_unique<TimelineView>(context);
}

} // namespace foretrain::gui
