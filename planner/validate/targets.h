#pragma once

#include <string>
#include <vector>

#include "planner/validate/accuracy.h"

/// The figures that validation aims at, beside what is reached.
namespace foretrain::validation {

struct TargetLine {
  std::string what;
  std::string target;
  int rows = 0;
  std::string reached;
  std::string held_out; ///< the same on rows that are held out; empty where it is not told apart
  bool met = false;     ///< by `reached`
};
[[nodiscard]] std::vector<TargetLine> target_lines(const std::vector<ValidatedRow>& rows, const Accuracy& accuracy);

} // namespace foretrain::validation
