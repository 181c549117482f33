// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/spec/plan.h"
#include "gui/model/environment.h"

namespace foretrain::gui {

/// What a slider scales.
struct Factor {
  std::string name; ///< "link of tier 'node'"
  std::string help;
  double value = 1;
};

/// One factor per tier of the network, then the device's speed, its memory bandwidth and its size.
[[nodiscard]] std::vector<Factor> factors_of(const Study& study);

struct Rescaled {
  double step_seconds = 0;
  double device_bytes = 0;
  bool legal = true; ///< else there are no figures
  bool fits = true;
};

/// The layouts on the changed cluster, by the engine of the search: milliseconds for a few. Error: as the search.
[[nodiscard]] Result<std::vector<Rescaled>> rescaled(const Environment& environment, const Study& study,
                                                     const std::vector<Factor>& factors,
                                                     std::span<const Layout> layouts);

} // namespace foretrain::gui
