#include "planner/stage_cache.h"

#include <algorithm>

#include "core/program/axes/data.h"
#include "core/program/lower.h"

namespace foretrain {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

void add_recompute(std::vector<std::int64_t>& key, const RecomputeChoice& recompute) {
  key.push_back(static_cast<std::int64_t>(recompute.kind));
  key.push_back(static_cast<std::int64_t>(recompute.method));
  key.push_back(recompute.count.value_or(-1));
  std::int64_t modules = 0;
  for (const RecomputeModule module : recompute.modules) modules |= std::int64_t{1} << static_cast<int>(module);
  key.push_back(modules);
}

void add_shape(std::vector<std::int64_t>& key, const GroupShape& shape) {
  for (const int members : shape.per_tier) key.push_back(members);
}

bool same_degrees(const Layout& a, const Layout& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.etp == b.etp && a.dp_shard == b.dp_shard &&
         a.dp_replicate == b.dp_replicate && a.placement == b.placement && a.context_parallel == b.context_parallel;
}

} // namespace

StudyContext make_study_context(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                                const Semantics& semantics, CostModel cost) {
  StudyContext study{model, cluster, job, semantics, std::move(cost), {}, fanouts_of(cluster), layer_shapes(model), true};
  study.host.per_layer = semantics.host_per_layer.value;
  study.host.sync = semantics.moe_host_sync.value;
  study.uniform = std::all_of(study.shapes.begin(), study.shapes.end(), [&](const LayerShape& shape) { return shape == study.shapes.front(); });
  return study;
}

std::size_t StageCache::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  for (const std::int64_t value : key) hash = mix(hash, static_cast<std::uint64_t>(value));
  return hash;
}

const Mesh& StageCache::mesh_of(const Layout& layout) {
  if (!has_mesh_ || !same_degrees(layout, mesh_layout_)) {
    mesh_ = Mesh(layout, study_.fanouts);
    mesh_layout_ = layout;
    has_mesh_ = true;
  }
  return mesh_;
}

StageCache::Blocks& StageCache::blocks_of(const Layout& layout, const Mesh& mesh, bool split_backward) {
  Key& key = scratch_;
  key.clear();
  for (const int value : {layout.tp, layout.cp, layout.ep, layout.etp, layout.micro_batch, layout.sequence_parallel ? 1 : 0,
                          static_cast<int>(layout.context_parallel.kind), layout.context_parallel.ulysses,
                          static_cast<int>(layout.expert_dispatch.kind), split_backward ? 1 : 0, layout.pp > 1 ? 1 : 0,
                          layout.overlap.tp ? 1 : 0})
    key.push_back(value);
  add_recompute(key, layout.recompute);
  for (const Group group : {Group::tp, Group::cp, Group::cp_inner, Group::cp_outer, Group::ep, Group::etp, Group::ep_etp})
    add_shape(key, mesh.shape(group));
  if (last_blocks_ && key == blocks_key_) return *last_blocks_;
  auto& entry = blocks_[key];
  if (!entry) {
    entry = std::make_unique<Blocks>();
    entry->context = make_context(study_.model, study_.job, study_.semantics, layout, split_backward);
  }
  blocks_key_ = key;
  last_blocks_ = entry.get();
  return *entry;
}

int StageCache::Blocks::index_of(const BlockKey& key, const StudyContext& study) {
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found != keys.end()) return static_cast<int>(found - keys.begin());
  keys.push_back(key);
  program.blocks.push_back(make_block(context, key));
  Program one;
  one.mesh = program.mesh;
  one.blocks = {program.blocks.back()};
  times.push_back(block_times(one, study.cost, study.host).front());
  return static_cast<int>(keys.size()) - 1;
}

StageProfile StageCache::build(Blocks& blocks, const Layout& layout, const Mesh& mesh, const std::vector<int>& layers,
                               int stage, int micro_batches, bool split_backward) {
  // The same calls as lower(), for one stage.
  Program& program = blocks.program;
  program.mesh = mesh;
  program.stages = layout.pp;
  program.micro_batches = micro_batches;
  program.split_backward = split_backward;
  LayerContext context = blocks.context;
  context.layout = layout;
  Role role;
  role.stage = stage;
  role.boundary = Bytes(context.tokens_sp * study_.model.hidden * context.width);
  for (int index = 0; index < layout.schedule.chunks; ++index) {
    Chunk chunk;
    chunk.index = index;
    chunk.depth = index * layout.pp + stage;
    const ChunkPlan planned = chunk_plan(study_.model, study_.shapes, layout, layers, chunk.depth);
    chunk.layers = planned.layers;
    for (const BlockKey& key : planned.blocks) chunk.blocks.push_back(blocks.index_of(key, study_));
    role.chunks.push_back(std::move(chunk));
  }
  for (Chunk& chunk : role.chunks) data::add_collectives(context, program, role, chunk);
  data::add_step(context, program, role);
  data::add_persistent(context, program, role);
  return stage_profile(program, role, blocks.times, study_.cost, study_.host);
}

const StageProfile& StageCache::stage(const Layout& layout, const Mesh& mesh, const std::vector<int>& layers, int stage,
                                      int micro_batches, bool split_backward) {
  Blocks& blocks = blocks_of(layout, mesh, split_backward);
  Key& key = scratch_;
  key = blocks_key_;
  key.push_back(static_cast<std::int64_t>(layout.sharding.kind));
  key.push_back(layout.sharding.reshard_after_forward ? (*layout.sharding.reshard_after_forward ? 1 : 0) : -1);
  for (const bool flag : {layout.offload.optimizer, layout.overlap.dp_gradients, layout.overlap.dp_parameters,
                          micro_batches == 1, stage == 0, stage == layout.pp - 1})
    key.push_back(flag ? 1 : 0);
  for (const Group group : {Group::data, Group::shard, Group::replicate, Group::expert_data, Group::expert_shard, Group::embedding})
    add_shape(key, mesh.shape(group));
  key.push_back(mesh.world());
  key.push_back(layout.dp_replicate);
  for (int index = 0; index < layout.schedule.chunks; ++index) {
    const int depth = index * layout.pp + stage;
    int first = 0; // layers that differ make equally long chunks differ
    if (!study_.uniform)
      for (int d = 0; d < depth; ++d) first += layers[static_cast<std::size_t>(d)];
    const int count = layers[static_cast<std::size_t>(depth)];
    key.push_back(count);
    key.push_back(depth == 0 ? 1 : depth == layout.pp * layout.schedule.chunks - 1 ? 2 : 0);
    key.push_back(first);
  }
  const auto found = stages_.find(key);
  if (found != stages_.end()) return found->second;
  const Key owned = key; // `build` reuses nothing of the scratch, but the map needs its own
  return stages_.emplace(owned, build(blocks, layout, mesh, layers, stage, micro_batches, split_backward)).first->second;
}

} // namespace foretrain
