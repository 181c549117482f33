// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include "core/program/ranks.h"
#include "core/spec/prediction.h"
#include "simulator/simulation.h"

namespace foretrain::gui {

/// s until all stages are done: the step, or more where they do not wait for one another at its end.
[[nodiscard]] double end_of(const Simulation& simulation);

/// Which links the ranks of each stage use when, from the replay of a step. The ranks of a stage do the same at the
/// same time; a group uses the links of the outermost tier that it crosses.
class Traffic {
public:
  struct Use {
    TimePart part = TimePart::tp; ///< whose transfer it is
    int tier = 0;                 ///< 0: links inside a node
    bool operator==(const Use&) const = default;
  };

  Traffic() = default;
  Traffic(const Simulation& simulation, const Mesh& mesh);

  [[nodiscard]] double end() const { return end_; } ///< s, of all stages
  /// What a stage's ranks transfer at a time.
  [[nodiscard]] std::vector<Use> at(int stage, double seconds) const;
  /// Share of the devices whose links of a tier carry something at a time, 0 … 1.
  [[nodiscard]] double share(int tier, double seconds) const;
  /// The same, averaged over the step.
  [[nodiscard]] double average(int tier) const;
  [[nodiscard]] int tiers() const { return tiers_; }

private:
  struct Interval {
    double start = 0;
    double end = 0;
  };
  /// Transfers of one part of one stage, merged where they overlap.
  struct Line {
    Use use;
    std::vector<Interval> busy;
  };
  [[nodiscard]] static bool covers(const std::vector<Interval>& busy, double seconds);
  static void merge(std::vector<Interval>& intervals);

  std::vector<std::vector<Line>> stages_;
  double step_ = 0; ///< s: less than `end_` where stages do not wait for one another
  double end_ = 0;
  int tiers_ = 1;
};

} // namespace foretrain::gui
