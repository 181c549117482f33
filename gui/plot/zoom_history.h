// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace foretrain::gui {

/// The part of a plot that is shown.
struct Shown {
  double x_low = 0;
  double x_high = 1;
  double y_low = 0;
  double y_high = 1;
  bool operator==(const Shown&) const = default;
};

/// What a plot has shown, to go back to. Changes that follow each other quickly (a wheel that turns) are one step.
class ZoomHistory {
public:
  static constexpr double kOneStep = 0.4; ///< s
  static constexpr std::size_t kMost = 50;

  /// Begins anew with the whole of the data.
  void begin(const Shown& whole) {
    steps_ = {whole};
    at_ = 0;
    last_ = -1;
  }
  void visit(const Shown& shown, double now_s) {
    if (steps_.empty()) begin(shown);
    if (steps_[at_] == shown) return;
    const bool quick = at_ > 0 && last_ >= 0 && now_s - last_ < kOneStep;
    last_ = now_s;
    steps_.resize(at_ + 1);
    if (quick) {
      steps_.back() = shown;
      return;
    }
    steps_.push_back(shown);
    if (steps_.size() > kMost) steps_.erase(steps_.begin());
    at_ = steps_.size() - 1;
  }
  /// Back (-1) or forward (1); nothing when there is nothing more.
  [[nodiscard]] std::optional<Shown> step(int by) {
    if (by < 0 ? at_ == 0 : at_ + 1 >= steps_.size()) return std::nullopt;
    at_ = by < 0 ? at_ - 1 : at_ + 1;
    last_ = -1;
    return steps_[at_];
  }

private:
  std::vector<Shown> steps_;
  std::size_t at_ = 0;
  double last_ = -1; ///< s, of the newest step
};

} // namespace foretrain::gui
