#pragma once

#include <string>
#include <vector>

#include "planner/validate/row.h"

namespace foretrain::validation {

/// Layouts of one job on one machine, in the order that was predicted and that was measured.
struct RankedGroup {
  std::string name;
  int rows = 0;
  double spearman = 0;
  double regret_percent = 0; ///< how much slower the predicted best measured than the measured best
  int false_fits_on_top = 0; ///< among the ten fastest predictions of the group, ran out of memory but predicted to fit
};

/// Groups that share model, device, devices, sequence, batch, precision, kernels and framework and have at least five
/// timed rows. By name.
[[nodiscard]] std::vector<RankedGroup> rank_groups(const Rows& rows);

struct RankingSummary {
  int groups = 0;
  double mean_spearman = 0;
  double worst_spearman = 1;
  double mean_regret = 0;
  double worst_regret = 0;
  int false_fits_on_top = 0;
};
[[nodiscard]] RankingSummary summarise_groups(const std::vector<RankedGroup>& groups);

/// Rank correlation of two lists; values closer than 1 % share their rank. 0 when all values of a list are ties.
[[nodiscard]] double spearman(const std::vector<double>& a, const std::vector<double>& b);

} // namespace foretrain::validation
