#include "core/spec/intervals.h"

#include <algorithm>

#include "core/base/describe.h"

namespace foretrain {
namespace {

/// data/intervals.json: a member per evidence level, in it one per pace.
struct LevelIntervals {
  Interval kernels, mixed, launches;
  bool operator==(const LevelIntervals&) const = default;
};
struct IntervalsFile {
  std::string source;
  LevelIntervals measured, interpolated, fitted, datasheet;
  Interval memory;
};

std::array<Interval, kPaces> by_pace(const LevelIntervals& level) {
  return {level.kernels, level.mixed, level.launches};
}
LevelIntervals level_of(const std::array<Interval, kPaces>& level) {
  return {level[0], level[1], level[2]};
}

} // namespace

template <> struct Described<Interval> {
  static constexpr const char* name = "interval";
  static constexpr const char* doc = "Where 80 % of measured figures lie, as multiples of the predicted one.";
  static constexpr auto members =
      std::tuple{required("low", &Interval::low, "least of the shortest range that holds 80 % of measured / predicted")
                     .between(0.01, 2),
                 required("high", &Interval::high, "most of it").between(0.5, 100),
                 required("own_low", &Interval::own_low, "tenth percentile within a study").between(0.01, 2),
                 required("own_high", &Interval::own_high, "ninetieth percentile within a study").between(0.5, 100),
                 required("rows", &Interval::rows, "rows that it was read from").between(0, 1000000000)};
};
template <> struct Described<LevelIntervals> {
  static constexpr const char* name = "intervals of a level";
  static constexpr const char* doc = "By what a step waits for.";
  static constexpr auto members =
      std::tuple{required("kernels", &LevelIntervals::kernels, "less than 2 % of the step waits for the host"),
                 required("mixed", &LevelIntervals::mixed, "less than 20 %"),
                 required("launches", &LevelIntervals::launches, "more")};
};
template <> struct Described<IntervalsFile> {
  static constexpr const char* name = "intervals";
  static constexpr const char* doc = "80 % intervals from the residuals of published runs.";
  static constexpr auto members =
      std::tuple{required("source", &IntervalsFile::source, "what they were read from"),
                 required("measured", &IntervalsFile::measured, "step time, all durations measured"),
                 required("interpolated", &IntervalsFile::interpolated, "step time, some between measured shapes"),
                 required("fitted", &IntervalsFile::fitted, "step time, some from a formula fitted to the device"),
                 required("datasheet", &IntervalsFile::datasheet, "step time, some from a family's efficiency"),
                 required("memory", &IntervalsFile::memory, "memory")};
};

Result<Intervals> intervals_from(const Json& json, const std::string& file) {
  FORETRAIN_TRY(const IntervalsFile read, read_value<IntervalsFile>(json, Where{file, ""}));
  return Intervals{{by_pace(read.measured), by_pace(read.interpolated), by_pace(read.fitted), by_pace(read.datasheet)},
                   read.memory};
}

Json to_json(const Intervals& intervals) {
  const std::string source = "measured / predicted over the rows of data/measured that are not held out";
  const auto& time = intervals.time;
  return write_value(IntervalsFile{source, level_of(time[0]), level_of(time[1]), level_of(time[2]), level_of(time[3]),
                                   intervals.memory});
}

Result<Intervals> read_intervals(const std::filesystem::path& data) {
  const std::filesystem::path path = data / "intervals.json";
  FORETRAIN_TRY(const Json json, read_json_file(path));
  return intervals_from(json, path.string());
}

Pace pace_of(double host_share) {
  constexpr double kFew = 0.02;
  constexpr double kMany = 0.2;
  return host_share < kFew ? Pace::kernels : host_share < kMany ? Pace::mixed : Pace::launches;
}

std::string_view id_of(Pace pace) {
  switch (pace) {
  case Pace::kernels:
    return "kernels";
  case Pace::mixed:
    return "mixed";
  case Pace::launches:
    return "launches";
  }
  return "";
}

const Interval& time_interval(const Intervals& intervals, const Prediction& prediction) {
  const double host = prediction.time[static_cast<std::size_t>(TimePart::host)].value;
  const double share = prediction.step_time.value > 0 ? host / prediction.step_time.value : 0;
  return intervals.time[static_cast<std::size_t>(prediction.evidence)][static_cast<std::size_t>(pace_of(share))];
}

void set_intervals(Prediction& prediction, const Intervals& intervals) {
  const Interval& time = time_interval(intervals, prediction);
  const double step = prediction.step_time.value;
  prediction.step_time_interval = {Seconds(step * time.low), Seconds(step * time.high)};
  Bytes worst(0);
  for (const StageMemory& stage : prediction.memory) worst = std::max(worst, stage.device);
  const auto scaled = [&](double factor) {
    return Bytes(static_cast<std::int64_t>(factor * static_cast<double>(worst.value)));
  };
  prediction.memory_interval = {scaled(intervals.memory.low), scaled(intervals.memory.high)};
}

} // namespace foretrain
