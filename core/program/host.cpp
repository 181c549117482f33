#include "core/program/host.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/program/axes/data.h"
#include "core/program/context.h"
#include "core/program/state.h"

namespace foretrain {
namespace {

struct Place {
  int index = 0;
  int size = 1;
};

Place place_in(const Mesh& mesh, Group group, int rank) {
  const std::vector<int> members = mesh.members(group, rank);
  return {static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin()),
          static_cast<int>(members.size())};
}

/// Where a rank stands among those that hold the same parameters, the experts' or the others.
struct Standing {
  Place shard;
  bool first_replica = true;
};

class Copies {
public:
  Copies(const Plan& plan, const LayerContext& context, const Program& program)
      : plan_(plan), c_(context), program_(program), sharded_(plan.layout.sharding.kind != ShardingKind::none),
        widths_(state_widths(plan.job, *context.semantics, plan.layout.sharding)) {}

  [[nodiscard]] Bytes of(int rank) const {
    const Mesh& mesh = program_.mesh;
    const Role& role = program_.roles[static_cast<std::size_t>(mesh.coordinate(rank, Axis::pp))];
    const std::array<Standing, 2> standing = {standing_of(rank, false), standing_of(rank, true)};
    double bytes = 0;
    for (const Chunk& chunk : role.chunks)
      for (const int index : chunk.blocks) {
        const Block& block = program_.blocks[static_cast<std::size_t>(index)];
        for (const Parameter& parameter : block.parameters) {
          const Standing& where = standing[parameter.expert ? 1 : 0];
          if (parameter.frozen || !where.first_replica || is_copy(block, parameter)) continue;
          if (parameter.replicated_tp && mesh.coordinate(rank, Axis::tp) != 0) continue;
          bytes += of(parameter, where.shard);
        }
      }
    return Bytes(std::llround(bytes));
  }

private:
  [[nodiscard]] Standing standing_of(int rank, bool expert) const {
    const Mesh& mesh = program_.mesh;
    const Place all = place_in(mesh, expert ? Group::expert_data : Group::data, rank);
    if (!sharded_) return {Place{}, all.index == 0};
    const Place shard = place_in(mesh, expert ? Group::expert_shard : Group::shard, rank);
    return {shard, all.index / shard.size == 0};
  }
  /// Of a table whose original is on the first stage.
  [[nodiscard]] bool is_copy(const Block& block, const Parameter& parameter) const {
    return parameter.name == "mtp/embedding" ||
           (block.kind == BlockKind::head && parameter.name == "head" && plan_.model.tied_embeddings);
  }
  [[nodiscard]] double of(const Parameter& parameter, const Place& shard) const {
    const std::int64_t elements = parameter.local_elements();
    const std::int64_t part = (elements + shard.size - 1) / shard.size;
    const std::int64_t first = std::min(elements, part * shard.index);
    const std::int64_t owned = std::min(part, elements - first);
    if (owned == 0) return 0;
    const StateBytes state =
        state_bytes(parameter, 1, plan_.job, *c_.semantics, c_.low, {ShardingKind::none, {}}, false);
    const double weight = widths_.master > 0 ? widths_.master : widths_.parameter;
    const double moments = static_cast<double>(state.moments.value) / static_cast<double>(elements);
    return (weight + moments) * static_cast<double>(owned);
  }

  const Plan& plan_;
  const LayerContext& c_;
  const Program& program_;
  bool sharded_;
  StateWidths widths_;
};

/// On the machine whose ranks hold most.
Bytes most_of_a_node(const std::vector<Bytes>& ranks, int per_node) {
  Bytes most;
  for (std::size_t first = 0; first < ranks.size(); first += static_cast<std::size_t>(per_node)) {
    Bytes sum;
    for (std::size_t rank = first; rank < std::min(ranks.size(), first + static_cast<std::size_t>(per_node)); ++rank)
      sum += ranks[rank];
    most = std::max(most, sum);
  }
  return most;
}

} // namespace

HostMemory host_memory(const Plan& plan, const Semantics& semantics, const Program& program) {
  const LayerContext context =
      make_context(plan.model, plan.job, semantics, plan.layout, plan.cluster.device, program.split_backward);
  std::vector<Bytes> optimizer;
  for (const Role& role : program.roles) optimizer.push_back(data::host_memory(context, program, role));
  const Copies copies(plan, context, program);
  HostMemory host;
  for (int rank = 0; rank < program.mesh.world(); ++rank) {
    host.optimizer.push_back(optimizer[static_cast<std::size_t>(program.mesh.coordinate(rank, Axis::pp))]);
    host.checkpoint_copy.push_back(copies.of(rank));
  }
  const int per_node = std::max(1, devices_per_node(plan.cluster));
  host.node_optimizer = most_of_a_node(host.optimizer, per_node);
  host.node_checkpoint_copy = most_of_a_node(host.checkpoint_copy, per_node);
  return host;
}

} // namespace foretrain
