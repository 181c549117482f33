#pragma once

#include <vector>

#include "core/base/json.h"
#include "executor/record.h"

namespace foretrain {

/// Durations of a rank's ops over the measured steps, by the op's number in the step.
class OpTimes {
public:
  /// Of the first steps that are added; more would only cost memory.
  static constexpr std::size_t kMostSamples = 256;

  void add(const StepRecord& record);
  /// `rank` and `op_times`: `samples`, and lists `median_s`, `p10_s`, `p90_s`, `mean_s` (without the
  /// slowest and the fastest tenth) with one entry per op.
  [[nodiscard]] Json to_json(int rank) const;
  [[nodiscard]] bool empty() const { return samples_.empty(); }

private:
  std::vector<std::vector<float>> samples_; ///< by op
};

} // namespace foretrain
