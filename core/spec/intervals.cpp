#include "core/spec/intervals.h"

#include <algorithm>

#include "core/base/describe.h"

namespace foretrain {
namespace {

/// data/intervals.json: a member per evidence level.
struct IntervalsFile {
  std::string source;
  Interval measured, interpolated, fitted, datasheet, memory;
};

} // namespace

template <> struct Described<Interval> {
  static constexpr const char* name = "interval";
  static constexpr const char* doc = "Where 80 % of measured figures lie, as multiples of the predicted one.";
  static constexpr auto members =
      std::tuple{required("low", &Interval::low, "tenth percentile of measured / predicted").between(0.01, 2),
                 required("high", &Interval::high, "ninetieth percentile").between(0.5, 100),
                 required("own_low", &Interval::own_low, "the same within a study").between(0.01, 2),
                 required("own_high", &Interval::own_high, "the same within a study").between(0.5, 100),
                 required("rows", &Interval::rows, "rows that it was read from").between(0, 1000000000)};
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
  return Intervals{{read.measured, read.interpolated, read.fitted, read.datasheet}, read.memory};
}

Json to_json(const Intervals& intervals) {
  const std::string source = "quantiles of measured / predicted over the rows of data/measured that are not held out";
  return write_value(IntervalsFile{source, intervals.time[0], intervals.time[1], intervals.time[2], intervals.time[3],
                                   intervals.memory});
}

Result<Intervals> read_intervals(const std::filesystem::path& data) {
  const std::filesystem::path path = data / "intervals.json";
  FORETRAIN_TRY(const Json json, read_json_file(path));
  return intervals_from(json, path.string());
}

void set_intervals(Prediction& prediction, const Intervals& intervals) {
  const Interval& time = intervals.time[static_cast<std::size_t>(prediction.evidence)];
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
