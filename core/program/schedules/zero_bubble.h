#pragma once

#include <vector>

#include "core/program/schedules/schedule.h"

/// What the zero-bubble schedules share (Qi et al. 2023, arXiv:2401.10241): the backward is split into I (input
/// gradients, on the critical path) and W (weight gradients, which fill holes). After `warm` forwards a stage runs F
/// and I in turn, and W of a micro-batch `lag` ones after its I; forwards that are left out at the end leave I and W in
/// turn.
namespace foretrain {

struct ZeroBubblePattern {
  std::vector<int> warm; ///< per stage
  std::vector<int> lag;  ///< per stage
  bool operator==(const ZeroBubblePattern&) const = default;
};

/// p - 1 - i forwards, W i micro-batches behind.
[[nodiscard]] ZeroBubblePattern zero_bubble_h1(int stages);
/// Twice both.
[[nodiscard]] ZeroBubblePattern zero_bubble_h2(int stages);

[[nodiscard]] std::vector<ScheduleSlot> zero_bubble_order(const ZeroBubblePattern& pattern, int micro_batches,
                                                          int stage);

/// (chunk, micro-batch) pairs that a stage holds at most: from F until W.
[[nodiscard]] int zero_bubble_peak(const ZeroBubblePattern& pattern, int micro_batches, int stage);

/// Why ends that wait for each transfer would wait in a circle: a stage would send before it takes what its neighbour
/// sends first. Nothing on one stage.
[[nodiscard]] std::optional<Rejection> zero_bubble_blocking(const Schedule& schedule, int stages);

/// The pattern under a cap on memory: `cap` times what the first stage of 1F1B retains. Of some patterns within it, the
/// one whose longest stage, from its first slot until its last, is the shortest in the weights of the shape; the first
/// of equals.
[[nodiscard]] ZeroBubblePattern zero_bubble_within(const ScheduleShape& shape, int cap);

/// That time, without transfers.
[[nodiscard]] long long zero_bubble_span(const ZeroBubblePattern& pattern, const SlotWeights& weights,
                                         int micro_batches);

} // namespace foretrain
