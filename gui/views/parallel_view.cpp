// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <QImage>
#include <QInputDialog>
#include <QPainter>

#include "gui/model/numbers.h"
#include "gui/plot/chart.h"
#include "gui/views/all.h"
#include "gui/views/parallel_data.h"
#include "gui/views/parallel_paint.h"

namespace foretrain::gui {
namespace {

constexpr int kCrispLines = 60; ///< of the first shown rows
constexpr double kHandle = 8;   ///< pixels
constexpr int kSmallest = 3;    ///< pixels: a shorter drag takes the brush away

/// A line per layout through an axis per field: density for all, crisp lines for the best, brushes that filter. By
/// keyboard: arrows choose an axis, `,` `.` move it, V turns it over, L makes it logarithmic, Enter asks for bounds.
class ParallelView final : public View {
public:
  explicit ParallelView(ViewContext context)
      : View(context), chart_(add_chart(add_column(), QStringLiteral("Parallel coordinates"))) {
    chart_->paint_marks = [this](QPainter& p, const Frame& f) { paint_lines(p, f); };
    chart_->paint_highlights = [this](QPainter& p, const Frame& f) { paint_over(p, f); };
    connect_mouse();
  }

  void set_theme(const Theme& theme) override {
    density_ = QImage();
    View::set_theme(theme);
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "rank";
    for (const ParallelAxis& axis : data_.axes) text += "," + std::string(axis.field->id);
    text += "\n";
    for (const int row : session().shown()) {
      text += std::to_string(row + 1);
      for (const ParallelAxis& axis : data_.axes)
        text += "," + csv_value(value_of(*axis.field, session().results().study,
                                         session().rows()[static_cast<std::size_t>(row)]));
      text += "\n";
    }
    return text;
  }

  [[nodiscard]] QVariantMap state() const override {
    return {{"order", list(arrangement_.order)},
            {"flipped", list(arrangement_.flipped)},
            {"logarithmic", list(arrangement_.logarithmic)}};
  }
  void restore(const QVariantMap& state) override {
    if (!state.contains("logarithmic")) return;
    arrangement_ = {ids(state["order"].toStringList()), ids(state["flipped"].toStringList()),
                    ids(state["logarithmic"].toStringList())};
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & (kRowsChanged | kShownChanged)) != 0)
      rebuild();
    else if ((changes & (kSelectionChanged | kHoverChanged)) != 0)
      chart_->redraw_highlights();
    if ((changes & kSelectionChanged) != 0) tell();
  }

private:
  static QStringList list(const std::vector<std::string>& ids) {
    QStringList list;
    for (const std::string& id : ids) list << QString::fromStdString(id);
    return list;
  }
  static std::vector<std::string> ids(const QStringList& list) {
    std::vector<std::string> ids;
    for (const QString& id : list) ids.push_back(id.toStdString());
    return ids;
  }

  void connect_mouse() {
    chart_->key_pressed = [this](int key) { return take_key(key); };
    chart_->pressed = [this](QPointF at, Qt::KeyboardModifiers keys) {
      axis_ = axis_at(at);
      control_ = (keys & Qt::ControlModifier) != 0;
      title_ = axis_ >= 0 && at.y() < chart_->frame().y(1) - 4;
      if (axis_ < 0) return false;
      from_ = to_ = chart_->value_at(at).y();
      press_ = at;
      if (const auto brush = brush_of(axis_); brush && !title_) { // near an edge: that edge moves
        const Frame frame = chart_->frame();
        if (std::abs(frame.y(brush->first) - at.y()) <= kHandle) from_ = brush->second;
        if (std::abs(frame.y(brush->second) - at.y()) <= kHandle) from_ = brush->first;
      }
      dragging_ = true;
      return true;
    };
    chart_->dragged = [this](QPointF at) {
      to_ = chart_->value_at(at).y();
      drag_x_ = at.x();
      chart_->redraw_highlights();
    };
    chart_->released = [this](QPointF at) {
      dragging_ = false;
      if (title_)
        take_title(at);
      else
        take_brush();
      chart_->redraw_highlights();
    };
    chart_->double_clicked = [this](QPointF at) {
      const int axis = axis_at(at);
      if (axis >= 0) ask_brush(axis);
      return axis >= 0;
    };
    chart_->hovered = [this](QPointF at) { session().set_hover(nearest(at)); };
    chart_->left = [this] { session().set_hover(-1); };
    chart_->clicked = [this](QPointF at, Qt::KeyboardModifiers) {
      if (const int row = nearest(at); row >= 0) session().select({row});
    };
  }

  [[nodiscard]] const Field& field_at(int axis) const { return *data_.axes[static_cast<std::size_t>(axis)].field; }

  [[nodiscard]] int axis_at(QPointF at) const {
    const Frame frame = chart_->frame();
    for (std::size_t i = 0; i < data_.axes.size(); ++i)
      if (std::abs(frame.x(double(i)) - at.x()) <= kHandle + 2) return static_cast<int>(i);
    return -1;
  }

  /// Places between which an axis is brushed.
  [[nodiscard]] std::optional<std::pair<double, double>> brush_of(int axis) const {
    const auto found = brushes_.find(std::string(field_at(axis).id));
    if (found == brushes_.end() || session().chip_text(Chip::Kind::brush, found->first).empty()) return std::nullopt;
    const ParallelAxis& a = data_.axes[static_cast<std::size_t>(axis)];
    const double x = std::clamp(a.place(found->second.first), 0.0, 1.0);
    const double y = std::clamp(a.place(found->second.second), 0.0, 1.0);
    return std::pair(std::min(x, y), std::max(x, y));
  }

  void set_brush(int axis, const std::string& text) {
    (void)session().set_chip({Chip::Kind::brush, std::string(field_at(axis).id), text});
  }

  void take_brush() {
    const Frame frame = chart_->frame();
    const ParallelAxis& axis = data_.axes[static_cast<std::size_t>(axis_)];
    const std::string id(axis.field->id);
    if (std::abs(frame.y(from_) - frame.y(to_)) < kSmallest) {
      brushes_.erase(id);
      return set_brush(axis_, "");
    }
    brushes_[id] = {axis.value(std::clamp(from_, 0.0, 1.0)), axis.value(std::clamp(to_, 0.0, 1.0))};
    set_brush(axis_, brush_text(axis, from_, to_));
  }

  /// A click flips the axis, with Ctrl makes it logarithmic, a drag moves it.
  void take_title(QPointF at) {
    if (std::abs(at.x() - press_.x()) < 6) return turn(control_ ? arrangement_.logarithmic : arrangement_.flipped);
    move_axis(static_cast<int>(std::clamp(std::lround(chart_->value_at(at).x()), 0L, long(data_.axes.size()) - 1)));
  }
  /// Puts the chosen axis among those, or takes it out.
  void turn(std::vector<std::string>& those) {
    const std::string id(field_at(axis_).id);
    if (std::erase(those, id) == 0) those.push_back(id);
    rebuild();
  }
  void move_axis(int to) {
    if (to < 0 || to >= static_cast<int>(data_.axes.size())) return;
    arrangement_.order = moved(data_, static_cast<std::size_t>(axis_), static_cast<std::size_t>(to));
    axis_ = to;
    rebuild();
  }

  bool take_key(int key) {
    const int axes = static_cast<int>(data_.axes.size());
    if (axes < 2) return false;
    const bool none = axis_ < 0 || axis_ >= axes;
    if (key == Qt::Key_Left || key == Qt::Key_Right) {
      axis_ = none ? 0 : std::clamp(axis_ + (key == Qt::Key_Right ? 1 : -1), 0, axes - 1);
      tell();
      chart_->redraw_highlights();
      return true;
    }
    if (none) return false;
    switch (key) {
    case Qt::Key_Comma:
    case Qt::Key_Period:
      move_axis(axis_ + (key == Qt::Key_Period ? 1 : -1));
      return true;
    case Qt::Key_V:
      turn(arrangement_.flipped);
      return true;
    case Qt::Key_L:
      turn(arrangement_.logarithmic);
      return true;
    case Qt::Key_Return:
    case Qt::Key_Enter:
      ask_brush(axis_);
      return true;
    default:
      return false;
    }
  }

  /// What a screen reader says: the layout, and the axis that keys act on.
  void tell() {
    QString text = row_title(session().current());
    if (axis_ >= 0 && axis_ < static_cast<int>(data_.axes.size()))
      text += QStringLiteral(" · axis ") + axis_title(data_.axes[static_cast<std::size_t>(axis_)]);
    chart_->setAccessibleDescription(text);
  }

  void ask_brush(int axis) {
    bool fine = false;
    const std::string id(field_at(axis).id);
    const QString text = QInputDialog::getText(
        this, QStringLiteral("Bounds of ") + text_of(id), QStringLiteral("2~8, >4, 1f1b|zb; empty: none"),
        QLineEdit::Normal, QString::fromStdString(session().chip_text(Chip::Kind::brush, id)), &fine);
    if (!fine) return;
    brushes_.erase(id);
    set_brush(axis, text.trimmed().toStdString());
  }

  void rebuild() {
    data_ = parallel_data(session(), arrangement_);
    density_ = QImage();
    const bool none = data_.axes.size() < 2;
    chart_->set_message(none ? QStringLiteral("Nothing varies between the layouts that are shown") : QString());
    AxisLook x;
    for (std::size_t i = 0; i < data_.axes.size(); ++i) x.ticks.emplace_back(double(i), QString());
    QString constant;
    for (const std::string& text : data_.constant)
      constant += (constant.isEmpty() ? QStringLiteral("the same everywhere: ") : QStringLiteral(", ")) +
                  QString::fromStdString(text);
    x.title = fontMetrics().elidedText(constant, Qt::ElideRight, std::max(300, width() - 60));
    AxisLook y;
    y.visible = false;
    y.zooms = false;
    chart_->set_axes(x, y);
    if (!none) chart_->set_extent(-0.4, double(data_.axes.size()) - 0.35, -0.18, 1.24);
    chart_->redraw();
    chart_->redraw_highlights();
  }

  [[nodiscard]] QPointF at(const Frame& frame, std::size_t axis, std::size_t position) const {
    const float place = data_.axes[axis].places[position];
    return frame.at(double(axis), std::isnan(place) ? kNoValue : double(place));
  }

  [[nodiscard]] int nearest(QPointF pixel) const {
    if (data_.axes.size() < 2) return -1;
    const Frame frame = chart_->frame();
    const double x = chart_->value_at(pixel).x();
    const auto left = static_cast<std::size_t>(std::clamp(std::floor(x), 0.0, double(data_.axes.size()) - 2));
    double best = 8;
    int found = -1;
    for (std::size_t i = 0; i < session().shown().size(); ++i) {
      const QPointF a = at(frame, left, i);
      const QPointF b = at(frame, left + 1, i);
      const double y = a.y() + (b.y() - a.y()) * (pixel.x() - a.x()) / std::max(1.0, b.x() - a.x());
      if (std::abs(y - pixel.y()) >= best) continue;
      best = std::abs(y - pixel.y());
      found = session().shown()[i];
    }
    return found;
  }

  void paint_line(QPainter& painter, const Frame& frame, std::size_t position) const {
    QPolygonF line;
    for (std::size_t axis = 0; axis < data_.axes.size(); ++axis) line << at(frame, axis, position);
    painter.drawPolyline(line);
  }

  void paint_density(QPainter& painter, const Frame& frame) {
    const QRectF band(frame.area.left(), frame.y(1), frame.area.width(), frame.y(0) - frame.y(1));
    const QSize size = band.size().toSize();
    if (size.width() < 4 || size.height() < 4) return;
    if (density_.size() != size || density_range_ != frame.shown) {
      std::vector<double> x;
      for (std::size_t i = 0; i < data_.axes.size(); ++i) x.push_back(frame.x(double(i)) - band.left());
      const auto counts = line_density(data_.axes, x, size.width(), size.height());
      const std::uint32_t highest = *std::max_element(counts.begin(), counts.end());
      std::vector<QRgb> shades(std::size_t{highest} + 1, 0); // by count; 0 stays transparent
      for (std::uint32_t count = 1; count <= highest; ++count)
        shades[count] =
            mixed(theme().base, theme().muted, 0.18 + 0.62 * std::log1p(double(count)) / std::log1p(double(highest)))
                .rgb();
      density_ = QImage(size, QImage::Format_ARGB32_Premultiplied);
      auto count = counts.begin();
      for (int y = 0; y < size.height(); ++y) {
        auto* line = reinterpret_cast<QRgb*>(density_.scanLine(y));
        for (int column = 0; column < size.width(); ++column) line[column] = shades[*count++];
      }
      density_range_ = frame.shown;
    }
    painter.drawImage(band.topLeft(), density_);
  }

  void paint_lines(QPainter& painter, const Frame& frame) {
    if (data_.axes.size() < 2) return;
    painter.setClipRect(frame.area);
    paint_density(painter, frame);
    painter.setRenderHint(QPainter::Antialiasing);
    const auto crisp = std::min<std::size_t>(kCrispLines, session().shown().size());
    for (std::size_t i = crisp; i-- > 0;) {
      painter.setPen(QPen(gradient(theme(), 1 - double(i) / double(kCrispLines)), 1.1));
      paint_line(painter, frame, i);
    }
    paint_axes(painter, frame, theme(), data_.axes);
    painter.setClipping(false);
  }

  void paint_over(QPainter& painter, const Frame& frame) {
    if (data_.axes.size() < 2) return;
    painter.setClipRect(frame.area);
    painter.setRenderHint(QPainter::Antialiasing);
    const auto& shown = session().shown();
    const auto line_of = [&](int row, const QColor& color, double width) {
      const auto found = std::find(shown.begin(), shown.end(), row);
      if (found == shown.end()) return;
      painter.setPen(QPen(color, width));
      paint_line(painter, frame, static_cast<std::size_t>(found - shown.begin()));
    };
    const std::size_t selected = std::min<std::size_t>(session().selection().size(), 200);
    for (std::size_t i = selected; i-- > 0;) line_of(session().selection()[i], theme().accent, i == 0 ? 3 : 1.5);
    if (session().hover() >= 0) line_of(session().hover(), theme().bad, 2);
    paint_axes(painter, frame, theme(), data_.axes); // labels stay readable over the lines
    QColor band = theme().accent;
    band.setAlphaF(0.25F);
    const auto brush_box = [&](int axis, double a, double b) {
      const QRectF box(QPointF(frame.x(axis) - 6, frame.y(std::max(a, b))),
                       QPointF(frame.x(axis) + 6, frame.y(std::min(a, b))));
      painter.fillRect(box, band);
      painter.setPen(QPen(theme().accent, 1.5));
      painter.drawRect(box);
    };
    for (std::size_t i = 0; i < data_.axes.size(); ++i)
      if (const auto brush = brush_of(static_cast<int>(i))) brush_box(static_cast<int>(i), brush->first, brush->second);
    if (dragging_ && !title_ && axis_ >= 0) brush_box(axis_, from_, to_);
    if (!dragging_ && chart_->focusProxy()->hasFocus() && axis_ >= 0 && axis_ < static_cast<int>(data_.axes.size())) {
      painter.setPen(QPen(theme().accent, 2.5));
      painter.drawLine(frame.at(axis_, 0), frame.at(axis_, 1));
    }
    if (dragging_ && title_) {
      painter.setPen(QPen(theme().accent, 2, Qt::DashLine));
      painter.drawLine(QPointF(drag_x_, frame.area.top()), QPointF(drag_x_, frame.area.bottom()));
    }
    painter.setClipping(false);
    if (session().hover() >= 0)
      draw_card(painter, theme(), frame.area, frame.area.topLeft() + QPointF(20, 20), {row_title(session().hover())});
  }

  Chart* chart_;
  ParallelData data_;
  ParallelArrangement arrangement_;
  std::map<std::string, std::pair<double, double>> brushes_; ///< values, by field
  QImage density_;
  QRectF density_range_;
  int axis_ = -1; ///< that was pressed or chosen by key
  bool title_ = false;
  bool control_ = false;
  bool dragging_ = false;
  double from_ = 0;
  double to_ = 0;
  double drag_x_ = 0;
  QPointF press_;
};

} // namespace

std::unique_ptr<View> make_parallel_view(ViewContext context) {
  return std::make_unique<ParallelView>(context);
}

} // namespace foretrain::gui
