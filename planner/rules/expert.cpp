#include <algorithm>

#include <fmt/format.h>

#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

std::optional<Rejection> has_experts(const RuleInput& in) {
  const Layout& l = in.layout;
  if (in.model.moe || (l.ep == 1 && l.etp == 1)) return std::nullopt;
  return reject(fmt::format("{} has no experts: ep {} × etp {} = {}, 1 is possible", in.model.name, l.ep, l.etp,
                            std::int64_t{l.ep} * l.etp),
                static_cast<double>(std::int64_t{l.ep} * l.etp), 1, {"ep 1, etp 1"});
}

/// Whatever the dispatch.
std::optional<Rejection> supported_at_all(const RuleInput& in) {
  const Layout& l = in.layout;
  if (l.ep > 1 && !in.semantics.expert_parallel)
    return reject(fmt::format("{} has no expert parallelism: ep {}, 1 is possible", in.semantics.name, l.ep), l.ep, 1,
                  {"ep 1, etp 1"});
  if (l.etp > 1 && !in.semantics.expert_tensor_parallel)
    return reject(
        fmt::format("{} does not split experts over tensor ranks: etp {}, 1 is possible", in.semantics.name, l.etp),
        l.etp, 1, {"etp 1"});
  return std::nullopt;
}

std::optional<Rejection> supported(const RuleInput& in) {
  if (auto rejection = supported_at_all(in)) return rejection;
  const Layout& l = in.layout;
  if (l.ep > 1 && l.tp > 1 && in.semantics.ep_needs_sp && !l.sequence_parallel)
    return reject(fmt::format("{} needs sequence parallelism for ep {} with tp {}; without it tp 1 is possible",
                              in.semantics.name, l.ep, l.tp),
                  l.tp, 1, {"sequence_parallel true", "tp 1"});
  if (std::int64_t{l.ep} * l.etp == 1) return std::nullopt;
  const auto& list = in.semantics.dispatch;
  if (std::find(list.begin(), list.end(), l.expert_dispatch.kind) == list.end()) {
    std::vector<std::string> nearest;
    for (const DispatchKind other : list) nearest.push_back(fmt::format("expert_dispatch {}", id_of(other)));
    return lacks(fmt::format("{} does not dispatch tokens by {}", in.semantics.name, id_of(l.expert_dispatch.kind)),
                 or_else(std::move(nearest), "ep 1, etp 1"));
  }
  return std::nullopt;
}

std::optional<Rejection> experts_split(const RuleInput& in) {
  const Layout& l = in.layout;
  if (!in.model.moe) return std::nullopt;
  const MoeSpec& moe = *in.model.moe;
  if (moe.experts % l.ep != 0)
    return reject(fmt::format("{} experts cannot be split over ep {}", moe.experts, l.ep), l.ep, moe.experts,
                  nearest_values("ep", l.ep, moe.experts, [&](std::int64_t e) { return moe.experts % e == 0; }));
  if (moe.ffn % l.etp != 0)
    return reject(fmt::format("an expert of width {} cannot be split over etp {}", moe.ffn, l.etp), l.etp, moe.ffn,
                  nearest_values("etp", l.etp, moe.ffn, [&](std::int64_t e) { return moe.ffn % e == 0; }));
  return std::nullopt;
}

std::optional<Rejection> folding(const RuleInput& in) {
  const Layout& l = in.layout;
  const std::int64_t experts = std::int64_t{l.ep} * l.etp;
  if (experts == 1) return std::nullopt;
  const std::int64_t dp = std::int64_t{l.dp_shard} * l.dp_replicate;
  const std::int64_t over = (in.semantics.ep_folds_over_tp ? std::int64_t{l.tp} : 1) * l.cp * dp;
  if (over % experts == 0) return std::nullopt;
  // The smallest number of devices: pp · max(tp · cp, ep · etp) for powers of two.
  return reject(fmt::format("ep {} × etp {} = {} does not divide {}cp × dp = {}", l.ep, l.etp, experts,
                            in.semantics.ep_folds_over_tp ? "tp × " : "", over),
                static_cast<double>(experts), static_cast<double>(over),
                or_else(nearest_values("ep", l.ep, over,
                                       [&](std::int64_t e) {
                                         return over % (e * l.etp) == 0 && in.model.moe &&
                                                in.model.moe->experts % e == 0;
                                       }),
                        "ep 1, etp 1"));
}

} // namespace

void add_expert_rules(RuleList& list) {
  list.push_back(make_rule("ep-without-experts", "Expert parallelism needs experts.", has_experts, RuleScope::degrees));
  list.push_back(make_rule("ep-supported", "The framework has this expert parallelism.", supported, RuleScope::dispatch,
                           supported_at_all));
  list.push_back(
      make_rule("experts-ep", "ep divides the experts, etp their width.", experts_split, RuleScope::degrees));
  list.push_back(make_rule("ep-folding", "ep · etp divides the ranks of a stage that experts fold over.", folding,
                           RuleScope::degrees));
}

} // namespace foretrain
