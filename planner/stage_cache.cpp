#include "planner/stage_cache.h"

#include <algorithm>

#include "core/program/lower.h"

namespace foretrain {
namespace {

bool same_degrees(const Layout& a, const Layout& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.etp == b.etp && a.dp_shard == b.dp_shard &&
         a.dp_replicate == b.dp_replicate && a.placement == b.placement && a.context_parallel == b.context_parallel;
}

std::int32_t module_mask(const RecomputeChoice& recompute) {
  std::int32_t mask = 0;
  if (recompute.kind == RecomputeKind::selective)
    for (const RecomputeModule module : recompute.modules) mask |= 1 << static_cast<int>(module);
  return mask;
}

template <class Key> void add_shape(Key& key, const GroupShape& shape) {
  for (const int members : shape.per_tier) key.push_back(members);
}

constexpr std::array kSlotPasses = {Pass::forward, Pass::backward, Pass::input, Pass::weight};

} // namespace

StudyContext make_study_context(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                                const Semantics& semantics, CostModel cost) {
  StudyContext study{model, cluster, job, semantics, std::move(cost), {}, fanouts_of(cluster), layer_shapes(model), true};
  study.host.per_layer = semantics.host_per_layer.value;
  study.host.sync = semantics.moe_host_sync.value;
  study.uniform = std::all_of(study.shapes.begin(), study.shapes.end(),
                              [&](const LayerShape& shape) { return shape == study.shapes.front(); });
  return study;
}

std::size_t StageCache::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = key.size();
  for (const std::int32_t value : key) {
    hash ^= static_cast<std::uint32_t>(value) + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
    hash *= 0xff51afd7ed558ccdULL;
  }
  return hash ^ hash >> 32;
}

const Mesh& StageCache::mesh_of(const Layout& layout) {
  if (!has_mesh_ || !same_degrees(layout, mesh_layout_)) {
    mesh_ = Mesh(layout, study_.fanouts);
    mesh_layout_ = layout;
    has_mesh_ = true;
  }
  return mesh_;
}

StageCache::Base& StageCache::base_of(const LayoutView& view) {
  const Layout& l = *view.layout;
  Key& key = scratch_;
  key.assign({l.tp, l.cp, l.ep, l.etp, l.micro_batch, l.sequence_parallel ? 1 : 0, static_cast<int>(l.context_parallel.kind),
              l.context_parallel.ulysses, static_cast<int>(l.expert_dispatch.kind), view.split_backward ? 1 : 0, l.pp > 1 ? 1 : 0});
  for (const Group group : {Group::tp, Group::cp, Group::cp_inner, Group::cp_outer, Group::ep, Group::etp, Group::ep_etp})
    add_shape(key, view.mesh->shape(group));
  if (last_base_ && key == base_key_) return *last_base_;
  auto& base = bases_[key];
  if (!base) {
    base = std::make_unique<Base>();
    base->context = make_context(study_.model, study_.job, study_.semantics, l, view.split_backward);
  }
  base_key_ = key;
  last_base_ = base.get();
  return *base;
}

const StageCache::TimedBlock& StageCache::block_of(Base& base, const LayoutView& view, const BlockKey& block) {
  const bool selective = (block.kind == BlockKind::layer && !block.recomputed) || block.kind == BlockKind::mtp;
  Key key = {static_cast<std::int32_t>(block.kind), block.recomputed ? 1 : 0, selective ? module_mask(view.layout->recompute) : 0};
  for (const LayerShape& shape : block.shapes) {
    key.push_back(static_cast<std::int32_t>(shape.mixer) * 8 + static_cast<std::int32_t>(shape.feed_forward));
    key.push_back(shape.window);
  }
  auto& entry = base.blocks[key];
  if (!entry) {
    entry = std::make_unique<TimedBlock>();
    LayerContext context = base.context;
    context.layout.recompute = view.layout->recompute;
    entry->block = make_block(context, block);
    entry->elements = data::elements_of(entry->block);
    for (std::size_t p = 0; p < kSlotPasses.size(); ++p)
      if (!entry->block.ops(kSlotPasses[p]).empty())
        entry->times[p] = block_time(entry->block, kSlotPasses[p], *view.mesh, study_.cost, study_.host);
  }
  return *entry;
}

std::int32_t StageCache::data_id(const LayoutView& view) {
  const Layout& l = *view.layout;
  Key& key = scratch_;
  key.clear();
  key.push_back(static_cast<std::int32_t>(l.sharding.kind) * 4 + (l.sharding.reshard_after_forward ? 1 + (*l.sharding.reshard_after_forward ? 1 : 0) : 0));
  key.push_back((l.offload.optimizer ? 1 : 0) | (l.overlap.dp_gradients ? 2 : 0) | (l.overlap.dp_parameters ? 4 : 0) | (view.micro_batches == 1 ? 8 : 0));
  for (const Group group : {Group::data, Group::shard, Group::replicate, Group::expert_data, Group::expert_shard, Group::tp, Group::embedding})
    add_shape(key, view.mesh->shape(group));
  if (last_data_ >= 0 && key == data_key_) return last_data_;
  data_key_ = key;
  last_data_ = data_ids_.try_emplace(key, static_cast<std::int32_t>(data_ids_.size())).first->second;
  return last_data_;
}

void StageCache::select(const LayoutView& view) {
  view_ = view;
  base_ = &base_of(view);
  data_ = data_id(view);
  modules_ = module_mask(view.layout->recompute);
}

void StageCache::add_chunk_key(Key& key, const LayoutView& view, int depth) const {
  int first = 0; // layers that differ make equally long chunks differ
  if (!study_.uniform)
    for (int d = 0; d < depth; ++d) first += (*view.layers)[static_cast<std::size_t>(d)];
  key.push_back((*view.layers)[static_cast<std::size_t>(depth)]);
  key.push_back((depth == 0 ? 1 : 0) | (depth + 1 == static_cast<int>(view.layers->size()) ? 2 : 0));
  key.push_back(first);
}

const ChunkProfile& StageCache::chunk(int stage, int index) {
  const RecomputeChoice& recompute = view_.layout->recompute;
  Key& key = scratch_;
  key.clear();
  add_chunk_key(key, view_, index * view_.layout->pp + stage);
  key.push_back(static_cast<std::int32_t>(recompute.kind) * 4 + static_cast<std::int32_t>(recompute.method));
  key.push_back(recompute.count.value_or(0));
  key.push_back(modules_);
  key.push_back(stage == 0 && index == 0 ? 1 : 0);
  key.push_back(data_);
  Base& base = *base_;
  const auto found = base.chunks.find(key);
  if (found != base.chunks.end()) return found->second;
  Key owned = key;
  return base.chunks.emplace(std::move(owned), build_chunk(base, view_, stage, index)).first->second;
}

/// Which collectives stand between a chunk's blocks depends on its parameters and on data parallelism, not on the
/// micro-batch or on what is recomputed (which changes no block's parameters).
const std::vector<ChunkOp>& StageCache::between_of(const LayerContext& context, const LayoutView& view, const Program& program,
                                                   const Role& role, const Chunk& chunk) {
  const Layout& l = *view.layout;
  Key key = {l.tp, l.ep, l.etp, l.pp > 1 ? 1 : 0, view.split_backward ? 1 : 0, data_, role.stage == 0 && chunk.index == 0 ? 1 : 0,
             static_cast<std::int32_t>(chunk.blocks.size())};
  add_chunk_key(key, view, chunk.depth);
  const auto found = between_.find(key);
  if (found != between_.end()) return found->second;
  Role scratch;
  scratch.stage = role.stage;
  Chunk own = chunk;
  data::add_collectives(context, program, scratch, own);
  return between_.emplace(std::move(key), std::move(own.between)).first->second;
}

ChunkProfile StageCache::build_chunk(Base& base, const LayoutView& view, int stage, int index) {
  const Layout& l = *view.layout;
  const int depth = index * l.pp + stage;
  const ChunkPlan plan = chunk_plan(study_.model, study_.shapes, l, *view.layers, depth);

  // Runs of equal blocks, and a scratch program that holds their parameters: all that data parallelism looks at.
  Program program;
  program.mesh = *view.mesh;
  program.stages = l.pp;
  program.micro_batches = view.micro_batches;
  program.split_backward = view.split_backward;
  Role role;
  role.stage = stage;
  Chunk chunk;
  chunk.depth = depth;
  chunk.index = index;
  chunk.layers = plan.layers;
  std::vector<const TimedBlock*> distinct;
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    if (i > 0 && plan.blocks[i] == plan.blocks[i - 1]) {
      chunk.blocks.push_back(chunk.blocks.back());
      continue;
    }
    const TimedBlock* timed = &block_of(base, view, plan.blocks[i]);
    const auto found = std::find(distinct.begin(), distinct.end(), timed);
    chunk.blocks.push_back(static_cast<int>(found - distinct.begin()));
    if (found == distinct.end()) distinct.push_back(timed);
  }
  for (const TimedBlock* timed : distinct) {
    Block parameters;
    parameters.kind = timed->block.kind;
    // Only the sums count for buckets: one parameter of each sort stands for all.
    const data::Elements& sums = timed->elements;
    const auto add_parameter = [&parameters](std::int64_t elements, bool expert, bool replicated) {
      if (elements > 0) parameters.parameters.push_back({"", {}, {elements}, expert, replicated});
    };
    add_parameter(sums.dense - sums.tp_replicated, false, false);
    add_parameter(sums.tp_replicated, false, true);
    add_parameter(sums.expert, true, false);
    parameters.forward_memory = timed->block.forward_memory;
    parameters.backward_memory = timed->block.backward_memory;
    parameters.input_memory = timed->block.input_memory;
    parameters.weight_memory = timed->block.weight_memory;
    program.blocks.push_back(std::move(parameters));
  }
  LayerContext context = base.context;
  context.layout = l;
  if (view.mesh->size(Group::data) > 1 || view.mesh->size(Group::expert_data) > 1) chunk.between = between_of(context, view, program, role, chunk);

  ChunkProfile profile;
  BlockTimes times;
  for (const TimedBlock* timed : distinct) {
    times.push_back(timed->times);
    for (const BlockTime& time : timed->times) profile.evidence = std::max(profile.evidence, time.evidence);
  }
  role.chunks.assign(static_cast<std::size_t>(index) + 1, Chunk{});
  role.chunks.back() = std::move(chunk);
  fill_chunk_profile(program, role, role.chunks.back(), times, study_.cost, study_.host, profile);
  return profile;
}

Bytes StageCache::boundary() {
  const LayerContext& context = base_->context;
  return Bytes(context.tokens_sp * study_.model.hidden * context.width);
}

const StageState& StageCache::state(int stage) {
  const Layout& l = *view_.layout;
  Key& key = scratch_;
  key.assign({l.tp, l.ep, l.etp, l.sequence_parallel ? 1 : 0, l.pp > 1 ? 1 : 0, stage == 0 ? 1 : 0, stage == l.pp - 1 ? 1 : 0, l.cp > 1 ? 1 : 0, data_});
  for (int index = 0; index < l.schedule.chunks; ++index) add_chunk_key(key, view_, index * l.pp + stage);
  const auto found = states_.find(key);
  if (found != states_.end()) return found->second;
  Key owned = key;
  return states_.emplace(std::move(owned), build_state(view_, stage)).first->second;
}

StageState StageCache::build_state(const LayoutView& view, int stage) {
  // Parameters do not depend on the micro-batch or on what is recomputed: one sequence and nothing recomputed will do.
  Layout plain = *view.layout;
  plain.micro_batch = 1;
  plain.recompute = {};
  LayoutView small = view;
  small.layout = &plain;
  Base& base = base_of(small);
  Program program;
  program.mesh = *view.mesh;
  program.stages = plain.pp;
  program.micro_batches = view.micro_batches;
  program.split_backward = view.split_backward;
  Role role;
  role.stage = stage;
  std::vector<BlockKey> keys;
  for (int index = 0; index < plain.schedule.chunks; ++index) {
    Chunk chunk;
    chunk.index = index;
    chunk.depth = index * plain.pp + stage;
    const ChunkPlan plan = chunk_plan(study_.model, study_.shapes, plain, *view.layers, chunk.depth);
    chunk.layers = plan.layers;
    for (const BlockKey& block : plan.blocks) {
      const auto found = std::find(keys.begin(), keys.end(), block);
      chunk.blocks.push_back(static_cast<int>(found - keys.begin()));
      if (found != keys.end()) continue;
      keys.push_back(block);
      Block parameters;
      parameters.kind = block.kind;
      parameters.parameters = block_of(base, small, block).block.parameters;
      program.blocks.push_back(std::move(parameters));
    }
    role.chunks.push_back(std::move(chunk));
  }
  LayerContext context = base.context;
  context.layout = plain;
  data::add_step(context, program, role);
  data::add_persistent(context, program, role);
  StageState state;
  for (const Persistent& entry : role.persistent) state.persistent += entry.bytes;
  for (const Bytes peak : role.step_peak) state.step_peak = std::max(state.step_peak, peak);
  for (const Op& op : role.step) {
    const Cost cost = op_cost(op, program.mesh, study_.cost, study_.host);
    if (cost.seconds > 0) state.evidence = std::max(state.evidence, cost.evidence);
    state.step_seconds += cost.seconds;
    state.step_parts[static_cast<std::size_t>(op.part)] += Seconds(cost.seconds);
  }
  state.outside = role.outside;
  return state;
}

} // namespace foretrain
