#include "executor/op_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace foretrain {
namespace {

/// The value that this share of the samples does not exceed, the nearest one that was measured.
float quantile(std::vector<float>& samples, double share) {
  const auto at = static_cast<std::ptrdiff_t>(std::lround(share * static_cast<double>(samples.size() - 1)));
  std::nth_element(samples.begin(), samples.begin() + at, samples.end());
  return samples[static_cast<std::size_t>(at)];
}

/// Of the samples without the slowest and the fastest tenth: what ops take adds up to what a step takes, as medians of
/// what is disturbed now and then do not.
double middle_mean(std::vector<float> samples) {
  std::sort(samples.begin(), samples.end());
  const auto cut = static_cast<std::ptrdiff_t>(samples.size() / 10);
  const double sum = std::accumulate(samples.begin() + cut, samples.end() - cut, 0.0);
  return sum / static_cast<double>(static_cast<std::ptrdiff_t>(samples.size()) - 2 * cut);
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
  Json means = Json::array();
  for (const std::vector<float>& samples : samples_) means.push_back(middle_mean(samples));
  times["mean_s"] = std::move(means);
  return Json{{"rank", rank}, {"op_times", std::move(times)}};
}

} // namespace foretrain
