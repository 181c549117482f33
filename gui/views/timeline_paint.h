// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "gui/plot/chart.h"
#include "gui/plot/gantt.h"
#include "gui/plot/theme.h"
#include "simulator/simulation.h"

namespace foretrain::gui {

/// A box of a lane. One that stands for several kinds shows how much of each there is.
void fill_box(QPainter& painter, const Theme& theme, const Box& box, const QRectF& area);

/// An arrow from what a pass waited for to the pass.
void paint_arrow(QPainter& painter, QPointF from, QPointF to);

/// Allocated memory over time, a curve per stage, between two heights of the plot. `capacity`: bytes, 0 when unknown.
void paint_memory(QPainter& painter, const Frame& frame, const Theme& theme, const Simulation& simulation, double top,
                  double bottom, double capacity);

} // namespace foretrain::gui
