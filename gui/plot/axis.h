// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <QString>

class QCPAxis;
class QCustomPlot;
class QPainter;

namespace foretrain::gui {

struct AxisLook {
  QString title; ///< with its unit
  bool log = false;
  bool visible = true;
  bool reversed = false;
  bool zooms = true;
  std::function<QString(double)> text;           ///< of a tick; empty: the number
  std::vector<std::pair<double, QString>> ticks; ///< instead of numbers; empty: numbers
};

/// What a view paints, as a part of the plot: it is clipped, buffered and exported as the axes are.
void add_painting(QCustomPlot& plot, const char* layer, std::function<void(QPainter&)> paint);

/// Gives an axis of the plot its title, scale and ticks.
void apply_look(QCPAxis& axis, const AxisLook& look);

} // namespace foretrain::gui
