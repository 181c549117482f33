// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace foretrain::gui {

/// One box of a lane. Spans of a lane are in time order and do not overlap.
struct Span {
  double start = 0;
  double end = 0;
  int kind = 0;   ///< what colours it
  int label = 0;  ///< micro-batch, -1: none
  int source = 0; ///< index of the event
};

/// A box to draw: one span, or several that are narrower than a pixel together.
struct Box {
  double start = 0;
  double end = 0;
  int kind = 0;
  int label = -1;
  int source = -1;               ///< -1: several
  std::array<float, 8> shares{}; ///< of several: each kind's part of their time
};

/// The boxes of a lane that are visible between two times; spans narrower than `least` (a pixel's time) are merged with
/// their neighbours while gaps stay below it, up to four pixels. Finds its way by bisection.
[[nodiscard]] std::vector<Box> visible_boxes(const std::vector<Span>& lane, double from, double to, double least);

/// Index of the span at a time, -1 in a gap.
[[nodiscard]] int span_at(const std::vector<Span>& lane, double time);

/// Time not covered by spans between two times.
[[nodiscard]] double idle_time(const std::vector<Span>& lane, double from, double to);

/// Joins neighbours of equal kind and label that touch: passes out of their ops.
[[nodiscard]] std::vector<Span> joined(const std::vector<Span>& lane, double gap);

} // namespace foretrain::gui
