#include "planner/rules/all.h"

#include <algorithm>
#include <array>

namespace foretrain {
namespace {

class CheckRule final : public Rule {
public:
  CheckRule(std::string_view id, std::string_view summary, RuleCheck test, RuleScope scope, RuleCheck degrees)
      : id_(id), summary_(summary), check_(test), scope_(scope),
        degrees_(scope == RuleScope::degrees ? test : degrees) {}
  [[nodiscard]] std::string_view id() const override { return id_; }
  [[nodiscard]] std::string_view summary() const override { return summary_; }
  [[nodiscard]] RuleScope scope() const override { return scope_; }
  [[nodiscard]] std::optional<Rejection> check(const RuleInput& input) const override { return named(check_(input)); }
  [[nodiscard]] std::optional<Rejection> check_degrees(const RuleInput& input) const override {
    return degrees_ ? named(degrees_(input)) : std::nullopt;
  }

private:
  [[nodiscard]] std::optional<Rejection> named(std::optional<Rejection> rejection) const {
    if (rejection && rejection->rule.empty()) rejection->rule = std::string(id_);
    return rejection;
  }

  std::string_view id_;
  std::string_view summary_;
  RuleCheck check_;
  RuleScope scope_;
  RuleCheck degrees_;
};

} // namespace

std::unique_ptr<const Rule> make_rule(std::string_view id, std::string_view summary, RuleCheck check, RuleScope scope,
                                      RuleCheck degrees_check) {
  return std::make_unique<CheckRule>(id, summary, check, scope, degrees_check);
}

Rejection reject(std::string reason, double needed, double available, std::vector<std::string> nearest) {
  Rejection rejection;
  rejection.reason = std::move(reason);
  rejection.needed = needed;
  rejection.available = available;
  rejection.nearest = std::move(nearest);
  return rejection;
}

Rejection lacks(std::string reason, std::vector<std::string> nearest) {
  return reject(std::move(reason), 1, 0, std::move(nearest));
}

std::vector<std::string> or_else(std::vector<std::string> list, std::string otherwise) {
  if (list.empty()) list.push_back(std::move(otherwise));
  return list;
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
  return names.empty() && highest >= 1 && legal(1) ? std::vector<std::string>{std::string(dimension) + " 1"} : names;
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
  static const std::array<std::vector<const Rule*>, kDimensions> by_scope = [] {
    std::array<std::vector<const Rule*>, kDimensions> lists;
    for (const auto& rule : rules()) lists[static_cast<std::size_t>(rule->scope())].push_back(rule.get());
    return lists;
  }();
  if (scope == RuleScope::degrees) {
    for (const auto& rule : rules())
      if (auto rejection = rule->check_degrees(input)) return rejection;
    return std::nullopt;
  }
  for (const Rule* rule : by_scope[static_cast<std::size_t>(scope)])
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
