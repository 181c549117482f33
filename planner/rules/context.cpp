#include <algorithm>

#include <fmt/format.h>

#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

std::optional<Rejection> kind(const RuleInput& in) {
  const Layout& l = in.layout;
  if (l.cp == 1) return std::nullopt;
  const auto& list = in.semantics.context_parallel;
  const std::string id(id_of(l.context_parallel.kind));
  if (std::find(list.begin(), list.end(), l.context_parallel.kind) == list.end()) {
    std::vector<std::string> nearest;
    for (const ContextKind other : list)
      if (other != ContextKind::ulysses_ring) nearest.push_back(fmt::format("context_parallel {}", id_of(other)));
    nearest.emplace_back("cp 1");
    return reject(fmt::format("{} has no context parallelism{}: cp {}, 1 is possible", in.semantics.name,
                              list.empty() ? "" : " of kind " + id, l.cp),
                  l.cp, 1, std::move(nearest));
  }
  if (in.job.attention != AttentionKernel::flash)
    return reject(fmt::format("context parallelism needs flash attention; the job asks for {}: cp {}, 1 is possible",
                              in.job.attention == AttentionKernel::eager ? "eager" : "unfused", l.cp),
                  l.cp, 1, {"cp 1", "attention flash"});
  return std::nullopt;
}

std::optional<Rejection> sequence(const RuleInput& in) {
  const Layout& l = in.layout;
  if (l.cp == 1) return std::nullopt;
  const bool zigzag = l.context_parallel.kind != ContextKind::ulysses;
  const std::int64_t parts = (zigzag ? 2 : 1) * std::int64_t{l.cp};
  if (in.job.sequence_length % parts == 0) return std::nullopt;
  return reject(fmt::format("sequence length {} is not a multiple of {}{} = {} (balanced causal halves)",
                            in.job.sequence_length, zigzag ? "2 × cp " : "cp ", l.cp, parts),
                static_cast<double>(parts), in.job.sequence_length,
                nearest_values("cp", l.cp, in.job.sequence_length, [&](std::int64_t c) {
                  return c == 1 || in.job.sequence_length % ((zigzag ? 2 : 1) * c) == 0;
                }));
}

/// Whatever the kind.
std::optional<Rejection> no_kind(const RuleInput& in) {
  const bool none = in.semantics.context_parallel.empty() || in.job.attention != AttentionKernel::flash;
  return none ? kind(in) : std::nullopt;
}
std::optional<Rejection> no_parts(const RuleInput& in) {
  return in.job.sequence_length % in.layout.cp != 0 ? sequence(in) : std::nullopt;
}

std::optional<Rejection> ulysses_heads(const RuleInput& in) {
  const Layout& l = in.layout;
  const bool exchanges =
      l.context_parallel.kind == ContextKind::ulysses || l.context_parallel.kind == ContextKind::ulysses_ring;
  if (l.cp == 1 || !exchanges) return std::nullopt;
  const bool mixed = l.context_parallel.kind == ContextKind::ulysses_ring;
  const int u = mixed ? l.context_parallel.ulysses : l.cp;
  const int heads = std::max(1, in.model.heads / l.tp);
  const int kv = in.model.latent ? heads : std::max(1, in.model.kv_heads / l.tp);
  const auto inner = [&](std::int64_t v) { return v > 1 && v < l.cp && l.cp % v == 0; };
  const auto splits = [&](std::int64_t v) { return heads % v == 0 && kv % v == 0 && (!mixed || inner(v)); };
  const auto nearest = [&] {
    return mixed ? or_else(nearest_values("ulysses", u, l.cp - 1, splits), "context_parallel ring")
                 : nearest_values("cp", u, std::min(heads, kv), splits);
  };
  if (mixed && !inner(u)) {
    int largest = l.cp / 2;
    while (largest > 1 && !inner(largest)) --largest;
    if (largest <= 1) largest = 0;
    return reject(
        fmt::format(
            "the inner all-to-all of degree {} must divide cp {} and be neither 1 nor cp; {} is the largest such", u,
            l.cp, largest),
        u, largest, nearest());
  }
  for (const int count : {heads, kv})
    if (count % u != 0)
      return reject(fmt::format("{} {}heads per tp rank cannot be split over an all-to-all of {}", count,
                                count == heads ? "" : "key-value ", u),
                    u, count, nearest());
  return std::nullopt;
}

} // namespace

void add_context_rules(RuleList& list) {
  list.push_back(
      make_rule("cp-kind", "The framework has this kind of context parallelism.", kind, RuleScope::context, no_kind));
  list.push_back(
      make_rule("cp-sequence", "The sequence splits into balanced parts.", sequence, RuleScope::context, no_parts));
  list.push_back(make_rule("cp-heads", "An all-to-all splits the heads that tensor parallelism left.", ulysses_heads,
                           RuleScope::context));
}

} // namespace foretrain
