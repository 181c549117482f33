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
  bool logarithmic = false;  ///< only where all values are positive
  std::vector<float> places; ///< of each shown row: 0 … 1, NaN: no value
  /// Place of a value, 0 … 1.
  [[nodiscard]] double place(double value) const;
  [[nodiscard]] double value(double place) const;
};

/// How the user has arranged the axes, by field id.
struct ParallelArrangement {
  std::vector<std::string> order;   ///< these come first; the rest as `parallel_data` has them
  std::vector<std::string> flipped; ///< run downwards
  /// Where all values are positive: degrees go by factors, and the slowest layouts take many times what the best take.
  std::vector<std::string> logarithmic{"tp", "pp",           "cp",          "ep",     "etp",
                                       "dp", "dp_replicate", "micro_batch", "chunks", "step_time_s"};
  bool operator==(const ParallelArrangement&) const = default;
};

struct ParallelData {
  std::vector<ParallelAxis> axes;
  std::vector<std::string> constant; ///< "cp 1": fields that do not vary
};

/// Axes of the shown rows: fields that vary, those that go with the step time most first, outcomes last, unless
/// they are arranged otherwise.
[[nodiscard]] ParallelData parallel_data(const Session& session, const ParallelArrangement& arrangement);

/// Axes in another order: the one at `from` stands at `to` then.
[[nodiscard]] std::vector<std::string> moved(const ParallelData& data, std::size_t from, std::size_t to);

/// The brush between two places of an axis, in the words of a column filter.
[[nodiscard]] std::string brush_text(const ParallelAxis& axis, double from, double to);

/// Lines per pixel: how many rows pass through each of width × height cells between neighbouring axes at the given x.
[[nodiscard]] std::vector<std::uint32_t> line_density(const std::vector<ParallelAxis>& axes,
                                                      const std::vector<double>& x, int width, int height);

} // namespace foretrain::gui
