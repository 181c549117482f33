#pragma once

#include <string>
#include <vector>

#include "core/spec/plan.h"
#include "core/spec/prediction.h"

namespace foretrain {

/// One bar of a waterfall: what a part of the step costs in each of two plans.
struct Difference {
  TimePart part = TimePart::compute;
  Seconds plan;
  Seconds baseline;
};

/// Why one plan is slower or faster than another: parts that differ, largest difference first, and what differs between
/// the layouts in words.
struct Explanation {
  std::vector<Difference> time;
  std::vector<std::string> layout_changes; ///< "tp 8 instead of 4"
  Seconds step;
  Seconds baseline_step;
};
[[nodiscard]] Explanation explain(const Plan& plan, const Prediction& prediction, const Plan& baseline,
                                  const Prediction& baseline_prediction);

/// "tp8 pp4 cp1 dp2 · mb 1 · interleaved×5 · ZeRO-1 · recompute none": one line that tells layouts apart.
[[nodiscard]] std::string describe(const Layout& layout);

} // namespace foretrain
