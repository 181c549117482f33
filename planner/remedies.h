#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/evaluate.h"
#include "planner/rules/rule.h"

namespace foretrain {

/// Names under which layouts that memory rules out are counted: after their evaluation, or before it by a bound.
inline constexpr std::string_view kOutOfMemory = "out-of-memory";
inline constexpr std::string_view kModelState = "model-state";
inline constexpr std::string_view kActivations = "activations";
[[nodiscard]] inline bool is_memory(std::string_view rule) {
  return rule == kOutOfMemory || rule == kModelState || rule == kActivations;
}

/// The shortage that `slots` says, under one of these names.
[[nodiscard]] Rejection memory_rejection(std::string_view rule, const Evaluation& slots, Bytes capacity);

/// Changes after which a legal layout that needs too much memory is legal and fits, at most three: of one dimension
/// ("micro_batch 1", "tp 4, dp 2", "recompute full"), the fastest first, then of several; else the fewest devices that
/// would do ("16 devices: dp 8"). Empty: none of these does, or the device's memory is not known.
[[nodiscard]] std::vector<std::string> remedies(const Evaluator& evaluator, const RuleInput& input);
/// The same with a worker of `evaluator` that remembers what it has evaluated.
[[nodiscard]] std::vector<std::string> remedies(const Evaluator& evaluator, Evaluator::Worker& worker,
                                                const RuleInput& input);

} // namespace foretrain
