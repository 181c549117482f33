#include "core/program/lower.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/program/axes/data.h"
#include "core/program/chunks.h"
#include "core/program/instructions.h"
#include "core/program/slot_weights.h"
#include "core/program/stages.h"

namespace foretrain {
namespace {

/// Index of the block with this key, built on first use.
class BlockTable {
public:
  BlockTable(const LayerContext& context, std::vector<Block>& blocks) : context_(context), blocks_(blocks) {}
  int index_of(const BlockKey& key) {
    const auto found = std::find(keys_.begin(), keys_.end(), key);
    if (found != keys_.end()) return static_cast<int>(found - keys_.begin());
    keys_.push_back(key);
    blocks_.push_back(make_block(context_, key));
    return static_cast<int>(keys_.size()) - 1;
  }

private:
  const LayerContext& context_;
  std::vector<Block>& blocks_;
  std::vector<BlockKey> keys_;
};

} // namespace

std::vector<int> fanouts_of(const ClusterSpec& cluster) {
  std::vector<int> fanouts;
  fanouts.reserve(cluster.tiers.size());
  for (const TierSpec& tier : cluster.tiers) fanouts.push_back(tier.fanout);
  return fanouts;
}

double fragmentation_share(const ModelSpec& model, const JobSpec& job, const Semantics& semantics,
                           const Layout& layout) {
  if (job.expandable_segments) return semantics.fragmentation_expandable;
  double share = semantics.fragmentation;
  if (layout.pp > 1) share = std::max(share, semantics.fragmentation_pp);
  if (model.moe) share = std::max(share, semantics.fragmentation_moe);
  if (layout.cp > 1) share = std::max(share, semantics.fragmentation_long);
  return share;
}

int boundary_parts(const Semantics& semantics, const Layout& layout) {
  return semantics.p2p_parts && !layout.sequence_parallel ? layout.tp : 1;
}

bool post_validates(const Semantics& semantics, const Layout& layout, bool split_backward) {
  return semantics.post_validation && split_backward && layout.pp > 1;
}

int micro_batches_of(const JobSpec& job, const Layout& layout) {
  return static_cast<int>(job.global_batch / (std::int64_t{layout.micro_batch} * layout.dp()));
}

ScheduleShape schedule_shape(const JobSpec& job, const Layout& layout) {
  return {layout.pp, layout.schedule.chunks, micro_batches_of(job, layout), layout.schedule.group};
}

Program lower(const Plan& plan, const Semantics& semantics) {
  const Layout& layout = plan.layout;
  const Schedule* schedule = schedules().find(layout.schedule.kind);
  FORETRAIN_CHECK(schedule, "the rules admit only schedules of the catalogue");
  ScheduleShape shape = schedule_shape(plan.job, layout);
  if (schedule->by_cost()) shape.weights = slot_weights(plan.model, plan.job, semantics, plan.cluster.device, layout);
  FORETRAIN_CHECK(!schedule->legal(shape), "the rules admit only legal shapes");

  Program program;
  program.semantics = semantics.name;
  program.mesh = Mesh(layout, fanouts_of(plan.cluster));
  program.stages = layout.pp;
  program.micro_batches = shape.micro_batches;
  program.split_backward = schedule->splits_backward();
  program.blocking_p2p =
      layout.pp > 1 && (!layout.overlap.p2p || (!schedule->overlaps_p2p() && semantics.p2p_blocking_1f1b));
  program.boundary_parts = boundary_parts(semantics, layout);
  program.post_validation = post_validates(semantics, layout, program.split_backward);
  const LayerContext context =
      make_context(plan.model, plan.job, semantics, layout, plan.cluster.device, program.split_backward);
  program.fragmentation = fragmentation_share(plan.model, plan.job, semantics, layout);
  program.replays_allocator = semantics.replays_allocator && !plan.job.expandable_segments;

  const std::vector<LayerShape> shapes = layer_shapes(plan.model);
  const std::vector<int> layers = layers_per_chunk(plan.model, layout, semantics);
  BlockTable table(context, program.blocks);
  const std::vector<std::vector<ScheduleSlot>> orders = schedule->orders(shape);
  for (int stage = 0; stage < layout.pp; ++stage) {
    Role role;
    role.stage = stage;
    role.boundary = Bytes(context.tokens_sp * plan.model.hidden * context.width);
    for (int index = 0; index < shape.chunks; ++index) {
      Chunk chunk;
      chunk.index = index;
      chunk.depth = index * layout.pp + stage;
      const ChunkPlan planned = chunk_plan(plan.model, shapes, layout, layers, chunk.depth);
      chunk.layers = planned.layers;
      for (const BlockKey& key : planned.blocks) chunk.blocks.push_back(table.index_of(key));
      role.chunks.push_back(std::move(chunk));
    }
    role.instructions = instructions_of(orders[static_cast<std::size_t>(stage)], shape, stage, program.blocking_p2p);
    program.roles.push_back(std::move(role));
  }
  for (Role& role : program.roles) {
    for (Chunk& chunk : role.chunks) data::add_collectives(context, program, role, chunk);
    data::add_step(context, program, role);
    data::add_persistent(context, program, role);
    for (int i = 0; i < static_cast<int>(role.step.size()); ++i) {
      Instruction instruction;
      instruction.kind = InstructionKind::step;
      instruction.pass = Pass::step;
      instruction.step = i;
      role.instructions.push_back(instruction);
    }
  }
  return program;
}

} // namespace foretrain
