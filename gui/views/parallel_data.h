// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>
#include <vector>

#include "gui/model/session.h"

namespace foretrain::gui {

/// An axis of the parallel coordinates.
struct ParallelAxis {
  const Field* field = nullptr;
  double low = 0;
  double high = 1;
  bool flipped = false;
  std::vector<float> places; ///< of each shown row: 0 … 1, NaN: no value
  /// Place of a value, 0 … 1.
  [[nodiscard]] double place(double value) const;
  [[nodiscard]] double value(double place) const;
};

struct ParallelData {
  std::vector<ParallelAxis> axes;
  std::vector<std::string> constant; ///< "cp 1": fields that do not vary
};

/// Axes of the shown rows: fields that vary, those that go with the step time most first, outcomes last. `order` (field
/// ids) comes before that; `flipped` names axes that run downwards.
[[nodiscard]] ParallelData parallel_data(const Session& session, const std::vector<std::string>& order,
                                         const std::vector<std::string>& flipped);

/// The brush between two places of an axis, in the words of a column filter.
[[nodiscard]] std::string brush_text(const ParallelAxis& axis, double from, double to);

/// Lines per pixel: how many rows pass through each of width × height cells between neighbouring axes at the given x.
[[nodiscard]] std::vector<std::uint32_t> line_density(const std::vector<ParallelAxis>& axes,
                                                      const std::vector<double>& x, int width, int height);

} // namespace foretrain::gui
