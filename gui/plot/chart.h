// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <QRectF>
#include <QString>
#include <QVariant>
#include <QWidget>

#include "gui/plot/axis.h"
#include "gui/plot/legend.h"

class QPaintDevice;
class QPainter;

namespace foretrain::gui {

struct Theme;

/// Values to pixels and back, while a chart is painted.
struct Frame {
  QRectF area;  ///< pixels between the axes
  QRectF shown; ///< values at its edges: left, right by x; top is the lower value
  std::function<double(double)> x;
  std::function<double(double)> y;
  [[nodiscard]] QPointF at(double vx, double vy) const { return {x(vx), y(vy)}; }
};

/// A plot: axes, ticks, zoom, pan and vector export are QCustomPlot's; what lies between the axes is painted by the
/// view. Wheel zooms at the pointer (Shift: sideways), drag pans or draws a box, double click fits, arrows and + − 0 do
/// the same by keyboard.
class Chart : public QWidget {
public:
  using Paint = std::function<void(QPainter&, const Frame&)>;
  enum class Drag { pan, box };

  explicit Chart(QWidget* parent = nullptr);
  ~Chart() override;

  void set_theme(const Theme& theme);
  [[nodiscard]] const Theme& theme() const;
  void set_axes(const AxisLook& x, const AxisLook& y);
  /// What "fit" shows. Keeps the zoom unless the user has not zoomed.
  void set_extent(double x_low, double x_high, double y_low, double y_high);
  void set_legend(std::vector<LegendEntry> entries);
  void set_drag(Drag drag) { drag_ = drag; }
  /// Shown in the middle instead of the plot when it is not empty.
  void set_message(const QString& message);

  std::function<bool()> may_paint; ///< false: what would be painted is behind the session; a refresh follows
  Paint paint_marks;               ///< kept until `redraw`
  Paint paint_highlights;          ///< over the marks, cheap to renew
  void redraw();
  void redraw_highlights();

  void fit();
  void show_range(double x_low, double x_high);
  void zoom(double factor, QPointF pixel);
  void pan(double x_share, double y_share);
  /// What was shown before (-1) or after (1); quick steps of the wheel count as one.
  void step_zoom(int by);
  [[nodiscard]] bool zoomed() const { return zoomed_; }
  /// What is shown of how much, for the next start; empty: all.
  [[nodiscard]] QVariantList zoom_state() const;
  /// Shows that part again as soon as there is just as much to show; other data are shown whole.
  void restore_zoom(const QVariantList& state);
  [[nodiscard]] Frame frame() const;
  [[nodiscard]] QPointF value_at(QPointF pixel) const;

  /// In pixels of this widget. `pressed` returns true to take the drag for itself: `dragged` and `released` follow.
  std::function<void(QPointF pixel)> hovered;
  std::function<void()> left;
  std::function<void(QPointF pixel, Qt::KeyboardModifiers)> clicked;
  std::function<void(QRectF pixels, Qt::KeyboardModifiers)> boxed;
  std::function<bool(QPointF pixel, Qt::KeyboardModifiers)> pressed;
  std::function<void(QPointF pixel)> dragged;
  std::function<void(QPointF pixel)> released;
  std::function<bool(QPointF pixel)> double_clicked; ///< false: fit
  std::function<bool(int key)> key_pressed;          ///< false: pan or zoom
  std::function<void()> range_changed;

  /// Paints the whole plot as vectors.
  void paint_to(QPaintDevice& device, QSize size);

protected:
  bool eventFilter(QObject* object, QEvent* event) override;

private:
  struct Parts;
  void apply_theme();
  void make_room(QSize plot_size); ///< for the legend
  void fit_titles();
  void paint_layer(QPainter& painter, bool highlights);
  bool mouse(QEvent* event);
  bool key(int code);
  void remember_range();
  void show_all();
  void range_is_new(); ///< the user has chosen what is shown

  std::unique_ptr<Parts> parts_;
  Drag drag_ = Drag::pan;
  bool zoomed_ = false;
};

} // namespace foretrain::gui
