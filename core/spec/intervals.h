#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/prediction.h"

namespace foretrain {

/// Where 80 % of measured figures lie, as multiples of the predicted one. `own` is what is left between plans of one
/// study once the error that they share (model, device, cluster) is taken off: differences are known better than
/// values.
struct Interval {
  double low = 0;
  double high = 0;
  double own_low = 0;
  double own_high = 0;
  int rows = 0; ///< that it was read from
  bool operator==(const Interval&) const = default;
};

inline constexpr std::size_t kEvidenceLevels = 4;

/// What a step waits for: the host's launches differ between machines more than kernels do.
enum class Pace {
  kernels,  ///< less than 2 % of the step waits for the host
  mixed,    ///< less than 20 %
  launches, ///< more
};
inline constexpr std::size_t kPaces = 3;
[[nodiscard]] Pace pace_of(double host_share);
[[nodiscard]] std::string_view id_of(Pace pace);

/// From the residuals of published runs, by the worst evidence of a prediction and what it waits for:
/// data/intervals.json, written by `foretrain validate --fit-intervals`.
struct Intervals {
  std::array<std::array<Interval, kPaces>, kEvidenceLevels> time{}; ///< by Evidence, then Pace
  Interval memory;
  bool operator==(const Intervals&) const = default;
};

[[nodiscard]] Result<Intervals> intervals_from(const Json& json, const std::string& file);
[[nodiscard]] Json to_json(const Intervals& intervals);
/// intervals.json of a data folder.
[[nodiscard]] Result<Intervals> read_intervals(const std::filesystem::path& data);

/// Of the step time of a prediction.
[[nodiscard]] const Interval& time_interval(const Intervals& intervals, const Prediction& prediction);
/// Sets the intervals of a finished prediction; its memory is that of the fullest stage's device.
void set_intervals(Prediction& prediction, const Intervals& intervals);

} // namespace foretrain
