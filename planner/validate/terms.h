#pragma once

#include <vector>

#include "planner/validate/row.h"

namespace foretrain::validation {

/// How the error of a source's rows goes with one part of the predicted time.
struct Term {
  TimePart part = TimePart::compute;
  double seconds = 0;     ///< of the row
  double share = 0;       ///< of the row's predicted step
  double correlation = 0; ///< over the source's rows, of the part's share with (measured - predicted) / predicted
  double slope = 0;       ///< what a step more of this part adds to the error: 0.5 = the part is half as long again
};

/// Parts of `row`, those first whose share goes best with the error over `rows` (of the same source, the row among
/// them). A part whose share does not vary, or fewer than five timed rows, says nothing: correlation 0.
[[nodiscard]] std::vector<Term> terms_of(const ValidatedRow& row, const Rows& rows);

} // namespace foretrain::validation
