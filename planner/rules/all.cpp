#include "planner/rules/all.h"

#include <algorithm>

namespace foretrain {
namespace {

class CheckRule final : public Rule {
public:
  CheckRule(std::string_view id, std::string_view summary, RuleCheck test, RuleScope scope)
      : id_(id), summary_(summary), check_(test), scope_(scope) {}
  [[nodiscard]] std::string_view id() const override { return id_; }
  [[nodiscard]] std::string_view summary() const override { return summary_; }
  [[nodiscard]] RuleScope scope() const override { return scope_; }
  [[nodiscard]] std::optional<Rejection> check(const RuleInput& input) const override {
    std::optional<Rejection> rejection = check_(input);
    if (rejection && rejection->rule.empty()) rejection->rule = std::string(id_);
    return rejection;
  }

private:
  std::string_view id_;
  std::string_view summary_;
  RuleCheck check_;
  RuleScope scope_;
};

} // namespace

std::unique_ptr<const Rule> make_rule(std::string_view id, std::string_view summary, RuleCheck check, RuleScope scope) {
  return std::make_unique<CheckRule>(id, summary, check, scope);
}

Rejection reject(std::string reason, double needed, double available, std::vector<std::string> nearest) {
  Rejection rejection;
  rejection.reason = std::move(reason);
  rejection.needed = needed;
  rejection.available = available;
  rejection.nearest = std::move(nearest);
  return rejection;
}

std::vector<std::string> nearest_values(std::string_view dimension, std::int64_t value, std::int64_t highest,
                                        const std::function<bool(std::int64_t)>& legal) {
  constexpr std::size_t kMost = 3;
  constexpr std::int64_t kFarthest = 4096;
  std::vector<std::string> names;
  value = std::min(value, highest + 1); // far beyond: the values below the highest are the nearest
  const std::int64_t reach = std::min(kFarthest, std::max(value, highest - value));
  for (std::int64_t distance = 1; distance <= reach && names.size() < kMost; ++distance)
    for (const std::int64_t candidate : {value - distance, value + distance})
      if (candidate >= 1 && candidate <= highest && names.size() < kMost && legal(candidate))
        names.push_back(std::string(dimension) + " " + std::to_string(candidate));
  return names;
}

const Catalogue<Rule>& rules() {
  static const Catalogue<Rule> catalogue = [] {
    RuleList list;
    add_model_rules(list);
    add_degree_rules(list);
    add_tensor_rules(list);
    add_context_rules(list);
    add_expert_rules(list);
    add_pipeline_rules(list);
    add_sharding_rules(list);
    add_recompute_rules(list);
    return Catalogue<Rule>(std::move(list));
  }();
  return catalogue;
}

std::optional<Rejection> first_rejection(const RuleInput& input) {
  for (const auto& rule : rules())
    if (auto rejection = rule->check(input)) return rejection;
  return std::nullopt;
}

std::optional<Rejection> first_rejection(const RuleInput& input, RuleScope scope) {
  for (const auto& rule : rules())
    if (rule->scope() == scope)
      if (auto rejection = rule->check(input)) return rejection;
  return std::nullopt;
}

std::vector<Rejection> all_rejections(const RuleInput& input) {
  std::vector<Rejection> list;
  for (const auto& rule : rules())
    if (auto rejection = rule->check(input)) list.push_back(std::move(*rejection));
  return list;
}

} // namespace foretrain
