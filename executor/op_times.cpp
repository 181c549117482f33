#include "executor/op_times.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace foretrain {
namespace {

/// The value that this share of the samples does not exceed, the nearest one that was measured.
float quantile(std::vector<float>& samples, double share) {
  const auto at = static_cast<std::ptrdiff_t>(std::lround(share * static_cast<double>(samples.size() - 1)));
  std::nth_element(samples.begin(), samples.begin() + at, samples.end());
  return samples[static_cast<std::size_t>(at)];
}

} // namespace

void OpTimes::add(const StepRecord& record) {
  if (samples_.empty()) samples_.resize(record.ops.size());
  if (samples_.size() != record.ops.size()) return; // a step that was given up
  for (std::size_t i = 0; i < samples_.size(); ++i)
    if (samples_[i].size() < kMostSamples)
      samples_[i].push_back(static_cast<float>(record.ops[i].end - record.ops[i].start));
}

Json OpTimes::to_json(int rank) const {
  constexpr std::array<std::pair<const char*, double>, 3> kQuantiles = {
      {{"median_s", 0.5}, {"p10_s", 0.1}, {"p90_s", 0.9}}};
  Json times;
  times["samples"] = samples_.empty() ? 0 : samples_.front().size();
  for (const auto& [name, share] : kQuantiles) {
    Json list = Json::array();
    for (std::vector<float> samples : samples_) list.push_back(static_cast<double>(quantile(samples, share)));
    times[name] = std::move(list);
  }
  return Json{{"rank", rank}, {"op_times", std::move(times)}};
}

} // namespace foretrain
