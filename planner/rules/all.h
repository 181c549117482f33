#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "planner/rules/rule.h"

/// Makers of the rules, one file per subject. `all.cpp` lists them in the order in which they are tried.
namespace foretrain {

using RuleCheck = std::optional<Rejection> (*)(const RuleInput&);
/// A rule from its id, summary and check. `degrees_check`: of a rule that looks at more, what degrees alone decide.
[[nodiscard]] std::unique_ptr<const Rule> make_rule(std::string_view id, std::string_view summary, RuleCheck check,
                                                    RuleScope scope = RuleScope::recompute,
                                                    RuleCheck degrees_check = nullptr);

/// A rejection by `needed` against `available`, with what would be legal nearby. The rule fills in its id.
[[nodiscard]] Rejection reject(std::string reason, double needed, double available,
                               std::vector<std::string> nearest = {});

/// A rejection because a framework, a cluster or a model lacks something that is asked for: 1 of it needed, 0
/// available.
[[nodiscard]] Rejection lacks(std::string reason, std::vector<std::string> nearest);

/// `list`, or `otherwise` alone where it is empty.
[[nodiscard]] std::vector<std::string> or_else(std::vector<std::string> list, std::string otherwise);

/// "tp 4", "tp 7": the values of `dimension` near `value` that `legal` admits, at most three, nearest first; 1 where it
/// is legal and nothing is near.
[[nodiscard]] std::vector<std::string> nearest_values(std::string_view dimension, std::int64_t value,
                                                      std::int64_t highest,
                                                      const std::function<bool(std::int64_t)>& legal);

using RuleList = std::vector<std::unique_ptr<const Rule>>;
void add_degree_rules(RuleList& list);   ///< world size, batch
void add_model_rules(RuleList& list);    ///< what can be modelled at all
void add_tensor_rules(RuleList& list);   ///< tp, sequence parallel
void add_context_rules(RuleList& list);  ///< cp
void add_expert_rules(RuleList& list);   ///< ep, etp
void add_pipeline_rules(RuleList& list); ///< pp, schedules
void add_sharding_rules(RuleList& list); ///< sharded state, replicas, offload, overlap
void add_recompute_rules(RuleList& list);

} // namespace foretrain
