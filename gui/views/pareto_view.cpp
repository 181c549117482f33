// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <limits>

#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QPainter>
#include <QToolButton>
#include <QVBoxLayout>

#include "gui/model/numbers.h"
#include "gui/plot/chart.h"
#include "gui/plot/points.h"
#include "gui/views/all.h"

namespace foretrain::gui {
namespace {

constexpr std::size_t kDrawnSingly = 20'000; ///< above it, points go through an image

/// Two fields of every shown layout, with the front when these are step time and memory.
class ParetoView final : public View {
public:
  explicit ParetoView(ViewContext context) : View(context) {
    QVBoxLayout* layout = add_column();
    auto* bar = new QHBoxLayout;
    x_ = add_choice(bar, "x", false);
    log_x_ = add_log(bar, QStringLiteral("Logarithmic x axis"));
    y_ = add_choice(bar, "y", false);
    log_y_ = add_log(bar, QStringLiteral("Logarithmic y axis"));
    color_ = add_choice(bar, "colour", true);
    size_ = add_choice(bar, "size", false, QStringLiteral("the same"));
    bar->addStretch(1);
    layout->addLayout(bar);
    chart_ = add_chart(layout, QStringLiteral("Pareto plot"));
    choose(x_, "step_time_s");
    choose(y_, "memory_gib");
    choose(color_, "pp");
    log_x_->setChecked(true); // the slowest layouts take many times what the best take
    chart_->set_drag(Chart::Drag::box);
    chart_->paint_marks = [this](QPainter& p, const Frame& f) { paint_points(p, f); };
    chart_->paint_highlights = [this](QPainter& p, const Frame& f) { paint_highlights(p, f); };
    connect_mouse();
  }

  void set_theme(const Theme& theme) override {
    View::set_theme(theme);
    for (QToolButton* log : {log_x_, log_y_}) show_checked(*log, theme);
  }

  [[nodiscard]] std::string csv() override {
    const Field* x = field(x_);
    const Field* y = field(y_);
    std::string text = "rank," + std::string(x->id) + "," + std::string(y->id) + ",pareto\n";
    for (const Point& point : points_)
      text += std::to_string(point.row + 1) + "," + csv_value(point.x) + "," + csv_value(point.y) + "," +
              (session().rows()[static_cast<std::size_t>(point.row)].pareto ? "true" : "false") + "\n";
    return text;
  }

  [[nodiscard]] QVariantMap state() const override {
    return {{"x", x_->currentData()},       {"y", y_->currentData()},       {"color", color_->currentData()},
            {"size", size_->currentData()}, {"log_x", log_x_->isChecked()}, {"log_y", log_y_->isChecked()}};
  }
  void restore(const QVariantMap& state) override {
    if (state.isEmpty()) return;
    choose(x_, state["x"].toString());
    choose(y_, state["y"].toString());
    choose(color_, state["color"].toString());
    choose(size_, state["size"].toString());
    log_x_->setChecked(state["log_x"].toBool());
    log_y_->setChecked(state["log_y"].toBool());
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & (kRowsChanged | kShownChanged)) != 0)
      rebuild();
    else if ((changes & (kSelectionChanged | kHoverChanged | kPinsChanged)) != 0)
      chart_->redraw_highlights();
    if ((changes & kSelectionChanged) != 0) chart_->setAccessibleDescription(row_title(session().current()));
  }

private:
  /// Fields with numbers, or with names of values as well; `none` comes first unless it is empty.
  QComboBox* add_choice(QHBoxLayout* bar, const char* name, bool texts, const QString& none = {}) {
    auto* label = new QLabel(QString::fromLatin1(name), this);
    auto* box = new QComboBox(this);
    if (!none.isEmpty()) box->addItem(none, QString());
    for (const Field& f : fields())
      if (f.kind == FieldKind::number || (texts && !f.values.empty()))
        box->addItem(text_of(title_with_unit(f)), text_of(f.id));
    box->setAccessibleName(QString::fromLatin1(name));
    box->setMinimumWidth(fontMetrics().averageCharWidth() * 10); // four of them fit between the docks
    label->setBuddy(box);
    connect(box, &QComboBox::currentIndexChanged, this, [this] {
      chart_->fit();
      rebuild();
    });
    bar->addWidget(label);
    bar->addWidget(box);
    return box;
  }
  QToolButton* add_log(QHBoxLayout* bar, const QString& help) {
    auto* button = new QToolButton(this);
    button->setText(QStringLiteral("log"));
    button->setCheckable(true);
    button->setToolTip(help);
    button->setAccessibleName(help);
    connect(button, &QToolButton::toggled, this, [this, button] {
      show_checked(*button, theme());
      chart_->fit();
      rebuild();
    });
    bar->addWidget(button);
    return button;
  }
  static void choose(QComboBox* box, const QString& id) {
    if (const int at = box->findData(id); at >= 0) box->setCurrentIndex(at);
  }
  static const Field* field(const QComboBox* box) { return find_field(box->currentData().toString().toStdString()); }

  void connect_mouse() {
    chart_->hovered = [this](QPointF at) { session().set_hover(nearest(at)); };
    chart_->left = [this] { session().set_hover(-1); };
    chart_->clicked = [this](QPointF at, Qt::KeyboardModifiers keys) {
      const int row = nearest(at);
      std::vector<int> rows;
      if ((keys & Qt::ShiftModifier) != 0) rows = session().selection();
      if (row >= 0) rows.insert(rows.begin(), row);
      session().select(std::move(rows));
    };
    chart_->boxed = [this](QRectF box, Qt::KeyboardModifiers keys) {
      std::vector<int> rows;
      if ((keys & Qt::ShiftModifier) != 0) rows = session().selection();
      const Frame frame = chart_->frame();
      for (const Point& point : points_)
        if (box.contains(frame.at(point.x, point.y))) rows.push_back(point.row);
      session().select(std::move(rows));
    };
    chart_->key_pressed = [this](int key) {
      if (front_.empty() || (key != Qt::Key_Left && key != Qt::Key_Right)) return false;
      const auto at = std::find(front_.begin(), front_.end(), session().current());
      std::ptrdiff_t next = at == front_.end() ? 0 : at - front_.begin() + (key == Qt::Key_Right ? 1 : -1);
      next = std::clamp<std::ptrdiff_t>(next, 0, static_cast<std::ptrdiff_t>(front_.size()) - 1);
      session().select({front_[static_cast<std::size_t>(next)]});
      return true;
    };
  }

  [[nodiscard]] int nearest(QPointF pixel) const {
    const Frame frame = chart_->frame();
    const int found = nearest_point(points_, pixel, 12, [&](const Point& point) { return frame.at(point.x, point.y); });
    return found < 0 ? -1 : points_[static_cast<std::size_t>(found)].row;
  }

  void rebuild() {
    const Field* x = field(x_);
    const Field* y = field(y_);
    const Field* color = field(color_);
    if (!x || !y || !color) return;
    points_.clear();
    front_.clear();
    color_low_ = std::numeric_limits<double>::infinity();
    color_high_ = -color_low_;
    const Field* size = field(size_); // absent: all the same
    double size_low = color_low_;
    double size_high = color_high_;
    for (const int row : session().shown()) {
      const Row& entry = session().rows()[static_cast<std::size_t>(row)];
      const auto value = [&](const Field& f) { return number_of(f, session().results().study, entry); };
      const Point point{value(*x), value(*y), value(*color), size ? value(*size) : 0, row};
      if (std::isnan(point.x) || std::isnan(point.y)) continue;
      if ((log_x_->isChecked() && point.x <= 0) || (log_y_->isChecked() && point.y <= 0)) continue;
      size_low = std::min(size_low, point.size); // an unknown one changes neither
      size_high = std::max(size_high, point.size);
      if (!std::isnan(point.color)) {
        color_low_ = std::min(color_low_, point.color);
        color_high_ = std::max(color_high_, point.color);
      }
      points_.push_back(point);
    }
    if (x->id == "step_time_s" && y->id == "memory_gib") {
      for (const Point& point : points_)
        if (session().rows()[static_cast<std::size_t>(point.row)].pareto) front_.push_back(point.row);
      std::sort(front_.begin(), front_.end(), [this](int a, int b) {
        return step_seconds(session().rows()[static_cast<std::size_t>(a)]) <
               step_seconds(session().rows()[static_cast<std::size_t>(b)]);
      });
    }
    for (Point& point : points_) // as areas: 1 the smallest, 4 in radius the largest
      point.size = !size || !(size_high > size_low) || std::isnan(point.size)
                       ? 1
                       : std::sqrt(1 + 15 * (point.size - size_low) / (size_high - size_low));
    find_few();
    show_axes(*x, *y, *color);
    chart_->redraw();
    chart_->redraw_highlights();
  }

  void find_few() {
    constexpr std::size_t kFew = 8;
    few_.clear();
    for (const Point& point : points_) {
      if (std::isnan(point.color)) continue;
      const auto place = std::lower_bound(few_.begin(), few_.end(), point.color);
      if (place != few_.end() && *place == point.color) continue;
      few_.insert(place, point.color);
      if (few_.size() > kFew) return few_.clear();
    }
  }

  void show_axes(const Field& x, const Field& y, const Field& color) {
    const auto look = [](const Field& f, bool log) {
      AxisLook axis;
      axis.title = text_of(std::string(f.help) + (f.unit.empty() ? "" : " (" + std::string(f.unit) + ")"));
      axis.log = log;
      axis.text = [](double value) { return QString::fromStdString(tick_number(value)); };
      return axis;
    };
    chart_->set_axes(look(x, log_x_->isChecked()), look(y, log_y_->isChecked()));
    chart_->set_message(points_.empty() ? QStringLiteral("No layout to show: search, or take filters away")
                                        : QString());
    if (points_.empty()) return;
    double low_x = points_.front().x, high_x = low_x, low_y = points_.front().y, high_y = low_y;
    for (const Point& point : points_) {
      low_x = std::min(low_x, point.x);
      high_x = std::max(high_x, point.x);
      low_y = std::min(low_y, point.y);
      high_y = std::max(high_y, point.y);
    }
    const auto pad = [](double& low, double& high, bool log) {
      if (log) {
        const double factor = std::max(1.05, std::pow(high / low, 0.05));
        low /= factor;
        high *= factor;
      } else {
        const double room = std::max((high - low) * 0.06, std::abs(high) * 1e-3);
        low -= room;
        high += room;
      }
    };
    pad(low_x, high_x, log_x_->isChecked());
    pad(low_y, high_y, log_y_->isChecked());
    chart_->set_extent(low_x, high_x, low_y, high_y);
    show_legend(color);
  }

  void show_legend(const Field& color) {
    std::vector<LegendEntry> entries;
    std::vector<double> values = few_;
    if (values.empty() && color_high_ >= color_low_) values = {color_low_, (color_low_ + color_high_) / 2, color_high_};
    for (const double value : values) {
      const bool text = color.kind == FieldKind::text;
      const QString name =
          text ? QString::fromStdString(color.values[static_cast<std::size_t>(value)])
               : text_of(color.title) + QStringLiteral(" ") + QString::fromStdString(short_value(color, value));
      entries.push_back({shade(value), name, LegendEntry::Shape::box});
    }
    if (!front_.empty()) entries.push_back({theme().text, QStringLiteral("front"), LegendEntry::Shape::line});
    chart_->set_legend(std::move(entries));
  }

  [[nodiscard]] QColor shade(double value) const {
    if (std::isnan(value)) return theme().muted;
    if (few_.size() > 1) {
      const auto place = std::lower_bound(few_.begin(), few_.end(), value) - few_.begin();
      return gradient(theme(), double(place) / double(few_.size() - 1));
    }
    return gradient(theme(), color_high_ > color_low_ ? (value - color_low_) / (color_high_ - color_low_) : 0.3);
  }

  void paint_points(QPainter& painter, const Frame& frame) {
    painter.setClipRect(frame.area);
    painter.setPen(Qt::NoPen);
    const bool single = points_.size() <= kDrawnSingly;
    const double radius = points_.size() < 500 ? 3.5 : single ? 2.2 : 1.2;
    painter.setRenderHint(QPainter::Antialiasing, single);
    // Worst first, so that the best are on top.
    for (auto point = points_.rbegin(); point != points_.rend(); ++point) {
      const QPointF at = frame.at(point->x, point->y);
      if (!frame.area.contains(at)) continue;
      QColor fill = shade(point->color);
      const bool front = session().rows()[static_cast<std::size_t>(point->row)].pareto;
      if (!front_.empty() && !front) fill.setAlphaF(0.55F);
      if (single) {
        painter.setBrush(fill);
        painter.drawEllipse(at, radius * point->size, radius * point->size);
      } else {
        const double half = radius * point->size;
        painter.fillRect(QRectF(at.x() - half, at.y() - half, 2 * half, 2 * half), fill);
      }
    }
    paint_front(painter, frame);
    painter.setClipping(false);
  }

  /// A step line: the area above and right of it is dominated.
  void paint_front(QPainter& painter, const Frame& frame) {
    if (front_.empty()) return;
    const Field* x = field(x_);
    const Field* y = field(y_);
    QPolygonF line;
    for (const int row : front_) {
      const Row& entry = session().rows()[static_cast<std::size_t>(row)];
      const QPointF at =
          frame.at(number_of(*x, session().results().study, entry), number_of(*y, session().results().study, entry));
      if (!line.isEmpty()) line << QPointF(at.x(), line.back().y());
      line << at;
    }
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(QPen(theme().text, 1.3));
    painter.setBrush(Qt::NoBrush);
    painter.drawPolyline(line);
    for (const int row : front_) {
      const Row& entry = session().rows()[static_cast<std::size_t>(row)];
      painter.drawEllipse(
          frame.at(number_of(*x, session().results().study, entry), number_of(*y, session().results().study, entry)), 4,
          4);
    }
  }

  void paint_highlights(QPainter& painter, const Frame& frame) {
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setClipRect(frame.area);
    const Field* x = field(x_);
    const Field* y = field(y_);
    const auto place = [&](int row) {
      const Row& entry = session().rows()[static_cast<std::size_t>(row)];
      return frame.at(number_of(*x, session().results().study, entry), number_of(*y, session().results().study, entry));
    };
    const auto ring = [&](int row, double radius, const QColor& color, double width) {
      painter.setPen(QPen(color, width));
      painter.setBrush(Qt::NoBrush);
      painter.drawEllipse(place(row), radius, radius);
    };
    for (const int row : session().pinned_rows()) {
      painter.setPen(theme().text);
      painter.drawText(place(row) + QPointF(5, -5), QStringLiteral("★"));
    }
    if (session().baseline() >= 0) {
      painter.setPen(theme().text);
      painter.drawText(place(session().baseline()) + QPointF(5, 14), QStringLiteral("B"));
    }
    const std::size_t shown = std::min<std::size_t>(session().selection().size(), 2000);
    for (std::size_t i = 0; i < shown; ++i)
      ring(session().selection()[i], i == 0 ? 7 : 5, theme().accent, i == 0 ? 2.5 : 1.5);
    painter.setClipping(false);
    if (session().hover() < 0) return;
    ring(session().hover(), 6, theme().bad, 2);
    const Row& entry = session().rows()[static_cast<std::size_t>(session().hover())];
    const auto value = [&](const QComboBox* box) {
      const Field* f = field(box);
      return text_of(f->title) + QStringLiteral(": ") +
             QString::fromStdString(short_value(*f, value_of(*f, session().results().study, entry)) + " " +
                                    std::string(f->unit));
    };
    QStringList lines{row_title(session().hover()), value(x_), value(y_), value(color_)};
    if (field(size_)) lines << value(size_);
    draw_card(painter, theme(), frame.area, place(session().hover()), lines);
  }

  Chart* chart_ = nullptr;
  QComboBox* x_ = nullptr;
  QComboBox* y_ = nullptr;
  QComboBox* color_ = nullptr;
  QComboBox* size_ = nullptr;
  QToolButton* log_x_ = nullptr;
  QToolButton* log_y_ = nullptr;
  std::vector<Point> points_;
  std::vector<int> front_;  ///< rows, fastest first
  std::vector<double> few_; ///< values of the colour, evenly apart in it, where there are at most eight
  double color_low_ = 0;
  double color_high_ = 1;
};

} // namespace

std::unique_ptr<View> make_pareto_view(ViewContext context) {
  return std::make_unique<ParetoView>(context);
}

} // namespace foretrain::gui
