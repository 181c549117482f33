#include <algorithm>

#include <fmt/format.h>

#include "core/spec/names.h"
#include "planner/rules/all.h"
#include "planner/twins.h"

namespace foretrain {
namespace {

/// Without stages, or with what is sharded beside a pipeline.
std::vector<std::string> unsharded(const RuleInput& in) {
  std::vector<std::string> nearest = {"pp 1, schedule 1f1b, chunks 1"};
  for (const ShardingKind kind : in.semantics.sharding)
    if (kind == ShardingKind::none || kind == ShardingKind::optimizer)
      nearest.push_back(fmt::format("sharding {}", id_of(kind)));
  return nearest;
}

std::optional<Rejection> supported(const RuleInput& in) {
  const Layout& l = in.layout;
  const auto& list = in.semantics.sharding;
  if (std::find(list.begin(), list.end(), l.sharding.kind) == list.end()) {
    std::vector<std::string> nearest;
    for (const ShardingKind kind : list) nearest.push_back(fmt::format("sharding {}", id_of(kind)));
    return lacks(fmt::format("{} does not shard {}", in.semantics.name, id_of(l.sharding.kind)), std::move(nearest));
  }
  if (l.pp > 1 && l.sharding.kind == ShardingKind::parameters && !in.semantics.pp_with_parameter_sharding)
    return reject(fmt::format("{} does not shard parameters with pp {}, 1 is possible", in.semantics.name, l.pp), l.pp,
                  1, unsharded(in));
  if (l.pp > 1 && l.sharding.kind == ShardingKind::gradients && !in.semantics.pp_with_gradient_sharding)
    return reject(fmt::format("{} does not shard gradients with pp {}, 1 is possible", in.semantics.name, l.pp), l.pp,
                  1, unsharded(in));
  return std::nullopt;
}

std::optional<Rejection> replicas(const RuleInput& in) {
  const Layout& l = in.layout;
  const bool sharded = l.sharding.kind != ShardingKind::none && shards_anything(l, in.model.moe.has_value());
  if (l.dp_replicate == 1 || sharded) return std::nullopt;
  // With one rank to a shard the replicas hold everything: that is sharding none, which has a name of its own.
  return reject(
      fmt::format("dp_replicate {} says over how many ranks sharded state is repeated; {}, 1 is possible",
                  l.dp_replicate,
                  l.sharding.kind == ShardingKind::none ? "nothing is sharded" : "dp_shard × cp = 1 shards nothing"),
      l.dp_replicate, 1, {fmt::format("dp_replicate 1, dp_shard {}", l.dp())});
}

std::optional<Rejection> offload(const RuleInput& in) {
  if (!in.layout.offload.optimizer) return std::nullopt;
  if (!in.semantics.offload_optimizer)
    return lacks(in.semantics.name + " keeps the optimizer on the device", {"offload.optimizer false"});
  if (!in.cluster.host_link)
    return lacks("the optimizer on the host needs the cluster's host_link, which is not known",
                 {"offload.optimizer false"});
  return std::nullopt;
}

std::optional<Rejection> tensor_overlap(const RuleInput& in) {
  if (!in.layout.overlap.tp) return std::nullopt;
  if (!in.semantics.tp_overlap)
    return lacks(in.semantics.name + " does not pipeline tensor-parallel collectives with their products",
                 {"overlap.tp false"});
  if (in.layout.tp > 1 && in.layout.sequence_parallel) return std::nullopt;
  return lacks("tensor-parallel collectives are pipelined with their products under sequence parallelism only",
               {"overlap.tp false"});
}

std::optional<Rejection> overlap(const RuleInput& in) {
  if (in.layout.overlap.moe)
    return lacks("expert dispatch beside another micro-batch's compute is not modelled yet", {"overlap.moe false"});
  return std::nullopt;
}

} // namespace

void add_sharding_rules(RuleList& list) {
  list.push_back(make_rule("sharding-supported", "The framework shards this state in this layout.", supported,
                           RuleScope::sharding));
  list.push_back(make_rule("replicas", "Replicas of shards need shards.", replicas, RuleScope::sharding));
  list.push_back(
      make_rule("offload", "The framework and the cluster can keep state on the host.", offload, RuleScope::offload));
  list.push_back(make_rule("tensor-overlap", "The framework pipelines tensor-parallel collectives in this layout.",
                           tensor_overlap, RuleScope::sequence_parallel));
  list.push_back(make_rule("overlap-not-modelled", "Overlap that is asked for is modelled.", overlap));
}

} // namespace foretrain
