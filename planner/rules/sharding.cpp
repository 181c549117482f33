#include <algorithm>

#include <fmt/format.h>

#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

std::optional<Rejection> supported(const RuleInput& in) {
  const Layout& l = in.layout;
  const auto& list = in.semantics.sharding;
  if (std::find(list.begin(), list.end(), l.sharding.kind) == list.end()) {
    std::vector<std::string> nearest;
    for (const ShardingKind kind : list) nearest.push_back(fmt::format("sharding {}", id_of(kind)));
    return reject(fmt::format("{} does not shard {}", in.semantics.name, id_of(l.sharding.kind)), 1, 0, std::move(nearest));
  }
  if (l.pp > 1 && l.sharding.kind == ShardingKind::parameters && !in.semantics.pp_with_parameter_sharding)
    return reject(fmt::format("{} does not shard parameters with pp {}", in.semantics.name, l.pp), l.pp, 1, {"pp 1", "sharding optimizer"});
  if (l.pp > 1 && l.sharding.kind == ShardingKind::gradients && !in.semantics.pp_with_gradient_sharding)
    return reject(fmt::format("{} does not shard gradients with pp {}", in.semantics.name, l.pp), l.pp, 1, {"pp 1", "sharding optimizer"});
  return std::nullopt;
}

std::optional<Rejection> replicas(const RuleInput& in) {
  const Layout& l = in.layout;
  if (l.dp_replicate == 1 || l.sharding.kind != ShardingKind::none) return std::nullopt;
  return reject(fmt::format("dp_replicate {} says over how many ranks sharded state is repeated; nothing is sharded", l.dp_replicate), l.dp_replicate, 1,
                {fmt::format("dp_replicate 1 with dp_shard {}", l.dp())});
}

std::optional<Rejection> offload(const RuleInput& in) {
  if (!in.layout.offload.optimizer) return std::nullopt;
  if (!in.semantics.offload_optimizer) return reject(in.semantics.name + " keeps the optimizer on the device", 1, 0, {"offload.optimizer false"});
  if (!in.cluster.host_link)
    return reject("the optimizer on the host needs the cluster's host_link, which is not known", 1, 0, {"offload.optimizer false"});
  return std::nullopt;
}

std::optional<Rejection> overlap(const RuleInput& in) {
  if (in.layout.overlap.tp) return reject("tensor-parallel collectives pipelined with their GEMM are not modelled yet", 1, 0, {"overlap.tp false"});
  if (in.layout.overlap.moe) return reject("expert dispatch beside another micro-batch's compute is not modelled yet", 1, 0, {"overlap.moe false"});
  return std::nullopt;
}

} // namespace

void add_sharding_rules(RuleList& list) {
  list.push_back(make_rule("sharding-supported", "The framework shards this state in this layout.", supported, RuleScope::sharding));
  list.push_back(make_rule("replicas", "Replicas of shards need shards.", replicas, RuleScope::sharding));
  list.push_back(make_rule("offload", "The framework and the cluster can keep state on the host.", offload, RuleScope::offload));
  list.push_back(make_rule("overlap-not-modelled", "Overlap that is asked for is modelled.", overlap));
}

} // namespace foretrain
