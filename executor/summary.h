#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "core/base/json.h"

namespace foretrain {

/// Follows a run's file while ranks append to it, and adds up what they say.
class RunFollower {
public:
  /// Steps count from `first` on; the first `warmup` of them are not measured.
  RunFollower(std::filesystem::path file, int world, int first, int warmup)
      : file_(std::move(file)), world_(world), first_(first), warmup_(warmup) {}

  struct Step {
    int number = 0;
    double loss = 0;                ///< of the global batch
    std::optional<double> mtp_loss; ///< the same of multi-token prediction
    double seconds = 0;             ///< of the slowest rank
    int ranks = 0;                  ///< that have reported
  };
  /// Reads what is new; the steps that every rank has finished since the last call, in order. After a restart those
  /// after the checkpoint come once more.
  [[nodiscard]] std::vector<Step> poll();
  /// `steps`, `first_step`, `restarts`, `step_time_s` (median of the measured steps), `loss` and `mtp_loss` per step,
  /// `memory` per rank, `errors` of ranks that gave up since the last restart.
  [[nodiscard]] Json summary() const;
  /// Ranks that have not said why they gave up, since the last restart.
  [[nodiscard]] std::vector<int> silent() const;

private:
  void go_back(int step);

  std::filesystem::path file_;
  int world_;
  int first_;
  int warmup_;
  int restarts_ = 0;
  std::streamoff read_ = 0;
  std::string pending_; ///< a line that is not complete yet
  std::vector<Step> steps_;
  std::size_t reported_ = 0;
  std::vector<std::int64_t> peaks_; ///< per rank
  Json errors_ = Json::array();     ///< what ranks said when they gave up
};

} // namespace foretrain
