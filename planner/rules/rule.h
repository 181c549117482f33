#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/catalogue.h"
#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/model.h"
#include "core/spec/prediction.h"
#include "core/spec/semantics.h"
#include "planner/dimension.h"

namespace foretrain {

/// What a rule looks at. Devices is the product of the cluster's fan-outs.
struct RuleInput {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const JobSpec& job;
  const Semantics& semantics;
  const Layout& layout;
  int devices = 0;
};

/// The innermost dimension that a rule looks at: one check judges every layout that shares the dimensions up to it. A
/// rule of `degrees` sees tp, pp, cp, ep, etp and dp alone.
using RuleScope = Dimension;

/// A feasibility rule: whether a layout can run at all. Memory is judged apart, after its prediction.
class Rule {
public:
  virtual ~Rule() = default;
  [[nodiscard]] virtual std::string_view id() const = 0;
  /// One sentence: what must hold.
  [[nodiscard]] virtual std::string_view summary() const = 0;
  [[nodiscard]] virtual RuleScope scope() const = 0;
  /// The clash with both numbers and the nearest legal changes, or nothing. Must hold for every input that the readers
  /// accept, without overflow.
  [[nodiscard]] virtual std::optional<Rejection> check(const RuleInput& input) const = 0;
  /// The clash of the degrees alone, which no other dimension can mend. Implied by `check`.
  [[nodiscard]] virtual std::optional<Rejection> check_degrees(const RuleInput& input) const = 0;
};

/// All rules in the order in which they are tried: cheap and general first. The first that fails names the rejection.
[[nodiscard]] const Catalogue<Rule>& rules();

/// The first rule that fails.
[[nodiscard]] std::optional<Rejection> first_rejection(const RuleInput& input);
/// The first rule that fails once the dimensions up to `scope` are settled and those before it are known to be legal.
[[nodiscard]] std::optional<Rejection> first_rejection(const RuleInput& input, RuleScope scope);
/// Every rule that fails, for `predict`.
[[nodiscard]] std::vector<Rejection> all_rejections(const RuleInput& input);

} // namespace foretrain
