// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <QElapsedTimer>

#include <qcustomplot.h>

#include "gui/plot/axis.h"
#include "gui/plot/chart.h"
#include "gui/plot/theme.h"
#include "gui/plot/zoom_history.h"

namespace foretrain::gui {

/// What a chart keeps; for the files that make it up.
struct Chart::Parts {
  QCustomPlot* plot = nullptr;
  const Theme* theme = &light_theme();
  AxisLook x_look;
  AxisLook y_look;
  QCPRange x_extent{0, 1};
  QCPRange y_extent{0, 1};
  std::vector<LegendEntry> legend;
  QString message;
  QPointF press;
  bool down = false;
  bool moved = false;
  bool taken = false; ///< the view has the drag
  QCPRange x_before;
  QCPRange y_before;
  QRectF box;
  bool ready = false; ///< the view has said what it shows
  bool exporting = false;
  ZoomHistory history;
  std::optional<std::pair<Shown, Shown>> kept; ///< the whole and the part that was shown at the last end
  QElapsedTimer clock;
  [[nodiscard]] Shown whole() const { return {x_extent.lower, x_extent.upper, y_extent.lower, y_extent.upper}; }
  [[nodiscard]] Shown shown() const {
    const QCPRange x = plot->xAxis->range();
    const QCPRange y = plot->yAxis->range();
    return {x.lower, x.upper, y.lower, y.upper};
  }
};

} // namespace foretrain::gui
