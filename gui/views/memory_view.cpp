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

constexpr double kBarWidth = 0.72; ///< of the room for a stage

QString part_name(int part) {
  const std::string_view id = id_of(static_cast<MemoryPart>(part));
  return QString::fromUtf8(id.data(), static_cast<qsizetype>(id.size()));
}

/// A stacked bar per pipeline stage against the device's capacity.
class MemoryView final : public View {
public:
  explicit MemoryView(ViewContext context)
      : View(context), chart_(add_chart(add_column(), QStringLiteral("Memory per pipeline stage"))) {
    chart_->paint_marks = [this](QPainter& p, const Frame& f) { paint_bars(p, f); };
    chart_->paint_highlights = [this](QPainter& p, const Frame& f) { paint_card(p, f); };
    chart_->hovered = [this](QPointF at) {
      const QPointF value = chart_->value_at(at);
      const double stage = std::round(value.x());
      show_card(std::abs(value.x() - stage) > kBarWidth / 2 ? -1 : static_cast<int>(stage), at);
    };
    chart_->left = [this] { show_card(-1, {}); };
    chart_->key_pressed = [this](int key) {
      if (stages_.empty() || (key != Qt::Key_Left && key != Qt::Key_Right)) return false;
      const int next = stage_ < 0 ? 0 : stage_ + (key == Qt::Key_Right ? 1 : -1);
      const int stage = std::clamp(next, 0, static_cast<int>(stages_.size()) - 1);
      const Frame frame = chart_->frame();
      show_card(stage, {frame.x(stage), frame.area.center().y()});
      return true;
    };
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "stage,allocated_bytes,reserved_bytes,device_bytes,peak_at";
    for (int part = 0; part < kMemoryParts; ++part) text += "," + part_name(part).toStdString();
    text += "\n";
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const StageMemory& stage = stages_[i];
      text += std::to_string(i) + "," + std::to_string(stage.allocated.value) + "," +
              std::to_string(stage.reserved.value) + "," + std::to_string(stage.device.value) + "," +
              csv_text(stage.peak_at);
      for (const Bytes bytes : stage.parts) text += "," + std::to_string(bytes.value);
      text += "\n";
    }
    return text;
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & (kSelectionChanged | kRowsChanged | kDetailChanged)) == 0) return;
    const int row = session().current();
    const auto detail = session().detail(row);
    stages_.clear();
    if (row >= 0) {
      const Row& entry = session().rows()[static_cast<std::size_t>(row)];
      if (detail && !detail->prediction.memory.empty())
        stages_ = detail->prediction.memory;
      else if (entry.prediction)
        stages_ = entry.prediction->memory;
    }
    const DeviceSpec& device = session().results().study.cluster.device;
    const auto capacity = device.usable_memory ? device.usable_memory : device.memory;
    capacity_ = capacity ? double(capacity->value) : 0;
    chart_->set_message(!stages_.empty() ? QString()
                        : row < 0        ? QStringLiteral("Select a layout to see where its memory goes")
                                         : QStringLiteral("Working it out …"));
    if (!stages_.empty()) show_axes();
    chart_->setAccessibleDescription(row_title(row));
    chart_->redraw();
  }

private:
  void show_axes() {
    double highest = capacity_;
    std::vector<bool> used(kMemoryParts, false);
    for (const StageMemory& stage : stages_) {
      highest = std::max(highest, double(stage.device.value));
      for (std::size_t part = 0; part < kMemoryParts; ++part) used[part] = used[part] || stage.parts[part].value > 0;
    }
    AxisLook x;
    x.title = QStringLiteral("pipeline stage");
    const std::size_t step = std::max<std::size_t>(1, stages_.size() / 24);
    for (std::size_t i = 0; i < stages_.size(); i += step) x.ticks.emplace_back(double(i), QString::number(i));
    AxisLook y;
    y.title = QStringLiteral("device memory (GiB)");
    y.zooms = false;
    y.text = [](double value) { return QString::fromStdString(tick_number(value)); };
    chart_->set_axes(x, y);
    chart_->set_extent(-0.6, double(stages_.size()) - 0.4, 0, highest / double(kGiB) * 1.08);
    std::vector<LegendEntry> legend;
    for (int part = 0; part < kMemoryParts; ++part)
      if (used[static_cast<std::size_t>(part)])
        legend.push_back({color_of(theme(), static_cast<MemoryPart>(part)), part_name(part), LegendEntry::Shape::box});
    if (capacity_ > 0) legend.push_back({theme().bad, QStringLiteral("what the device has"), LegendEntry::Shape::line});
    chart_->set_legend(std::move(legend));
  }

  void paint_bars(QPainter& painter, const Frame& frame) {
    painter.setClipRect(frame.area);
    const QFontMetricsF metrics(painter.font());
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const double left = frame.x(double(i) - kBarWidth / 2);
      const double right = frame.x(double(i) + kBarWidth / 2);
      double bottom = 0;
      for (int part = 0; part < kMemoryParts; ++part) {
        const double bytes = double(stages_[i].parts[static_cast<std::size_t>(part)].value);
        if (bytes <= 0) continue;
        const QRectF box(QPointF(left, frame.y((bottom + bytes) / double(kGiB))),
                         QPointF(right, frame.y(bottom / double(kGiB))));
        const QColor fill = color_of(theme(), static_cast<MemoryPart>(part));
        painter.fillRect(box, fill);
        painter.setPen(QPen(theme().base, 0));
        painter.drawLine(box.topLeft(), box.topRight());
        const QString label = QString::fromStdString(short_bytes(bytes));
        if (box.height() > metrics.height() && box.width() > metrics.horizontalAdvance(label) + 6) {
          painter.setPen(text_on(fill));
          painter.drawText(box, Qt::AlignCenter, label);
        }
        bottom += bytes;
      }
      paint_excess(painter, frame, left, right, bottom);
    }
    if (capacity_ > 0) {
      painter.setPen(QPen(theme().bad, 2));
      const double y = frame.y(capacity_ / double(kGiB));
      painter.drawLine(QPointF(frame.area.left(), y), QPointF(frame.area.right(), y));
    }
    for (std::size_t i = 0; i < stages_.size(); ++i) paint_total(painter, frame, i);
    painter.setClipping(false);
  }

  /// The bar's sum above it, readable where the line of the capacity passes.
  void paint_total(QPainter& painter, const Frame& frame, std::size_t stage) const {
    const QFontMetricsF metrics(painter.font());
    double bytes = 0;
    for (const Bytes part : stages_[stage].parts) bytes += double(part.value);
    const QString text = QString::fromStdString(short_bytes(bytes));
    const double width = metrics.horizontalAdvance(text) + 6;
    if (width > frame.x(1) - frame.x(0)) return;
    const QRectF box(frame.x(double(stage)) - width / 2, frame.y(bytes / double(kGiB)) - metrics.height() - 1, width,
                     metrics.height());
    painter.fillRect(box, theme().base);
    painter.setPen(theme().text);
    painter.drawText(box, Qt::AlignCenter, text);
  }

  /// What is above the capacity, hatched.
  void paint_excess(QPainter& painter, const Frame& frame, double left, double right, double total) const {
    if (capacity_ <= 0 || total <= capacity_) return;
    const QRectF excess(QPointF(left, frame.y(total / double(kGiB))),
                        QPointF(right, frame.y(capacity_ / double(kGiB))));
    painter.fillRect(excess, QBrush(theme().bad, Qt::BDiagPattern));
  }

  /// What a stage's bar is made of, at a place of the plot; -1: nothing.
  void show_card(int stage, QPointF at) {
    stage_ = stage;
    pointer_ = at;
    chart_->setAccessibleDescription(row_title(session().current()) + QStringLiteral("\n") +
                                     card().join(QStringLiteral("\n")));
    chart_->redraw_highlights();
  }

  [[nodiscard]] QStringList card() const {
    if (stage_ < 0 || stage_ >= static_cast<int>(stages_.size())) return {};
    const StageMemory& memory = stages_[static_cast<std::size_t>(stage_)];
    QStringList lines = {
        QStringLiteral("stage %1, peak at %2").arg(stage_).arg(QString::fromStdString(memory.peak_at))};
    for (int part = kMemoryParts - 1; part >= 0; --part) {
      const Bytes bytes = memory.parts[static_cast<std::size_t>(part)];
      if (bytes.value > 0)
        lines << part_name(part) + QStringLiteral(": ") + QString::fromStdString(short_bytes(double(bytes.value)));
    }
    lines << QStringLiteral("together: %1 of %2")
                 .arg(QString::fromStdString(short_bytes(double(memory.device.value))),
                      QString::fromStdString(short_bytes(capacity_)));
    return lines;
  }

  void paint_card(QPainter& painter, const Frame& frame) {
    if (const QStringList lines = card(); !lines.empty() && frame.area.contains(pointer_))
      draw_card(painter, theme(), frame.area, pointer_, lines);
  }

  Chart* chart_;
  std::vector<StageMemory> stages_;
  double capacity_ = 0;
  QPointF pointer_;
  int stage_ = -1; ///< whose parts are listed
};

} // namespace

std::unique_ptr<View> make_memory_view(ViewContext context) {
  return std::make_unique<MemoryView>(context);
}

} // namespace foretrain::gui
