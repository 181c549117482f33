#pragma once

#include <array>
#include <filesystem>
#include <string>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/prediction.h"

namespace foretrain {

/// Where 80 % of measured figures lie, as multiples of the predicted one. `own` is what is left between plans of one study
/// once the error that they share (model, device, cluster) is taken off: differences are known better than values.
struct Interval {
  double low = 0;
  double high = 0;
  double own_low = 0;
  double own_high = 0;
  int rows = 0; ///< that it was read from
  bool operator==(const Interval&) const = default;
};

inline constexpr std::size_t kEvidenceLevels = 4;

/// From the residuals of published runs, by the worst evidence of a prediction: data/intervals.json, written by
/// `foretrain validate --fit-intervals`.
struct Intervals {
  std::array<Interval, kEvidenceLevels> time{}; ///< by Evidence
  Interval memory;
  bool operator==(const Intervals&) const = default;
};

[[nodiscard]] Result<Intervals> intervals_from(const Json& json, const std::string& file);
[[nodiscard]] Json to_json(const Intervals& intervals);
/// intervals.json of a data folder.
[[nodiscard]] Result<Intervals> read_intervals(const std::filesystem::path& data);

/// Sets the intervals of a finished prediction; its memory is that of the fullest stage's device.
void set_intervals(Prediction& prediction, const Intervals& intervals);

} // namespace foretrain
