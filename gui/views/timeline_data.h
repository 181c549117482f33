// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/spec/layout.h"
#include "gui/plot/gantt.h"
#include "gui/plot/theme.h"
#include "simulator/simulation.h"

namespace foretrain::gui {

/// What a box of the timeline shows, in the order of the legend.
enum class PassKind { forward, backward, input, weight, recompute, step, transfer };
inline constexpr std::array kPassKinds = {PassKind::forward,   PassKind::backward, PassKind::input,   PassKind::weight,
                                          PassKind::recompute, PassKind::step,     PassKind::transfer};

/// A simulation made ready for drawing: per stage its compute passes, its ops and its transfers per lane. Stages that
/// do not wait for one another at the step's end go on with the next step: a stage's own step lasts `step` from its
/// first pass, and what all do together takes longer.
struct Timeline {
  struct Stage {
    std::vector<Span> passes;              ///< compute, ops of a pass joined
    double begin = 0;                      ///< s, of its own step
    double idle = 0;                       ///< s of its step without compute
    std::vector<std::vector<Span>> beside; ///< lanes of `lanes`
  };
  std::vector<Stage> stages;
  std::vector<Lane> lanes; ///< beside compute, those in use
  std::vector<bool> kinds; ///< in use, by PassKind
  double step = 0;         ///< s, of every stage
  double end = 0;          ///< s, of what is drawn: the step, or more where `apart`
  [[nodiscard]] bool apart() const { return end > step; }
};

/// A micro-batch on its way from one stage to the next.
struct Hop {
  std::size_t from_stage = 0;
  double left = 0; ///< s, when its pass there ended
  std::size_t to_stage = 0;
  double arrived = 0; ///< s, when the next pass began
  bool operator==(const Hop&) const = default;
};

/// What each pass of a micro-batch waited for on another stage: forward through the chunks of the model and back.
[[nodiscard]] std::vector<Hop> hops_of(const Timeline& timeline, int micro_batch);

/// Unless the schedule splits backward passes, their parts (I, W, R) are shown as one.
[[nodiscard]] Timeline timeline_of(const Simulation& simulation, bool splits_backward);
[[nodiscard]] bool splits_backward(const Layout& layout);
[[nodiscard]] QColor pass_color(const Theme& theme, int kind);
[[nodiscard]] PassKind pass_of(const TimelineEvent& event);

} // namespace foretrain::gui
