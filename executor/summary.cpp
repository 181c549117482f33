#include "executor/summary.h"

#include <algorithm>

#include "core/base/json_number.h"

namespace foretrain {

std::vector<RunFollower::Step> RunFollower::poll() {
  std::ifstream in(file_, std::ios::binary);
  if (!in) return {};
  in.seekg(read_);
  const std::string fresh((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  read_ += static_cast<std::streamoff>(fresh.size());
  pending_ += fresh;
  peaks_.resize(static_cast<std::size_t>(world_), -1);
  for (std::size_t end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
    const auto line = parse_json(std::string_view(pending_).substr(0, end), file_.string());
    pending_.erase(0, end + 1);
    if (line && line->contains("restart")) go_back((*line)["restart"]["step"].get<int>());
    if (line && line->contains("error")) errors_.push_back(*line);
    if (!line || !line->contains("loss")) continue; // the header, or what a rank says besides its steps
    const int number = (*line)["step"].get<int>();
    if (number < first_) continue;
    const auto at = static_cast<std::size_t>(number - first_);
    if (steps_.size() <= at) steps_.resize(at + 1);
    Step& step = steps_[at];
    step.number = number;
    step.loss += number_or_nan((*line)["loss"]);
    if (line->contains("mtp_loss")) step.mtp_loss = step.mtp_loss.value_or(0) + number_or_nan((*line)["mtp_loss"]);
    step.seconds = std::max(step.seconds, (*line)["step_time_s"].get<double>());
    ++step.ranks;
    const auto rank = (*line)["rank"].get<std::size_t>();
    if (line->contains("peak_allocated_bytes") && rank < peaks_.size())
      peaks_[rank] = std::max(peaks_[rank], (*line)["peak_allocated_bytes"].get<std::int64_t>());
  }
  std::vector<Step> done;
  while (reported_ < steps_.size() && steps_[reported_].ranks == world_) done.push_back(steps_[reported_++]);
  return done;
}

std::vector<int> RunFollower::silent() const {
  std::vector<int> list;
  for (int rank = 0; rank < world_; ++rank)
    if (std::none_of(errors_.begin(), errors_.end(),
                     [rank](const Json& line) { return line.value("rank", -1) == rank; }))
      list.push_back(rank);
  return list;
}

/// What was done after the checkpoint that a restart goes on from is done again.
void RunFollower::go_back(int step) {
  ++restarts_;
  errors_ = Json::array();
  const auto kept = static_cast<std::size_t>(std::max(0, step - first_));
  if (steps_.size() > kept) steps_.resize(kept);
  reported_ = std::min(reported_, kept);
}

Json RunFollower::summary() const {
  Json json;
  json["steps"] = reported_;
  json["first_step"] = first_;
  json["restarts"] = restarts_;
  std::vector<double> times;
  Json losses = Json::array();
  Json mtp_losses = Json::array();
  for (std::size_t i = 0; i < reported_; ++i) {
    losses.push_back(steps_[i].loss);
    if (steps_[i].mtp_loss) mtp_losses.push_back(*steps_[i].mtp_loss);
    if (static_cast<int>(i) >= warmup_) times.push_back(steps_[i].seconds);
  }
  if (!times.empty()) {
    std::sort(times.begin(), times.end());
    const std::size_t middle = times.size() / 2;
    json["step_time_s"] = times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
  }
  json["loss"] = std::move(losses);
  if (!mtp_losses.empty()) json["mtp_loss"] = std::move(mtp_losses);
  Json memory = Json::array();
  for (std::size_t rank = 0; rank < peaks_.size(); ++rank)
    if (peaks_[rank] >= 0) memory.push_back(Json{{"rank", rank}, {"peak_allocated_bytes", peaks_[rank]}});
  json["memory"] = std::move(memory);
  if (!errors_.empty()) json["errors"] = errors_;
  return json;
}

} // namespace foretrain
