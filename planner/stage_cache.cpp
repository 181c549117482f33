#include "planner/stage_cache.h"

#include <algorithm>
#include <optional>

#include "core/program/lower.h"

namespace foretrain {
namespace {

bool same_degrees(const Layout& a, const Layout& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.etp == b.etp && a.dp_shard == b.dp_shard &&
         a.dp_replicate == b.dp_replicate && a.placement == b.placement;
}

/// Layers that share a checkpoint.
int span_of(const RecomputeChoice& recompute) {
  const bool uniform = recompute.kind == RecomputeKind::full && recompute.method == RecomputeMethod::uniform;
  return uniform ? recompute.count.value_or(1) : 1;
}

void add_shape(CacheKey& key, const GroupShape& shape) {
  for (const int members : shape.per_tier) key.add(members);
}

constexpr std::array kSlotPasses = {Pass::forward, Pass::backward, Pass::input, Pass::weight};

} // namespace

std::uint64_t choice_key(const RecomputeChoice& recompute, const std::vector<LayerShape>& shapes) {
  if (recompute.kind == RecomputeKind::none || recompute.kind == RecomputeKind::full) return 0;
  constexpr int kModules = 16;
  std::uint64_t mask = static_cast<std::uint64_t>(recompute.kind) << kModules;
  const bool experts = std::any_of(shapes.begin(), shapes.end(),
                                   [](const LayerShape& shape) { return shape.feed_forward == FeedForward::moe; });
  const bool dense = std::any_of(shapes.begin(), shapes.end(),
                                 [](const LayerShape& shape) { return shape.feed_forward == FeedForward::dense; });
  for (const RecomputeModule module : recompute.modules) {
    if ((module == RecomputeModule::moe && !experts) || (module == RecomputeModule::mlp && !dense)) continue;
    mask |= std::uint64_t{1} << static_cast<int>(module);
  }
  return mask;
}

StudyContext make_study_context(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                                const Semantics& semantics, CostModel cost) {
  StudyContext study{model, cluster, job, semantics, std::move(cost), {}, fanouts_of(cluster), layer_shapes(model),
                     true};
  study.host.per_layer = semantics.host_per_layer.value;
  study.host.sync = semantics.moe_host_sync.value;
  study.uniform = std::all_of(study.shapes.begin(), study.shapes.end(),
                              [&](const LayerShape& shape) { return shape == study.shapes.front(); });
  return study;
}

std::size_t StageCache::LongKeyHash::operator()(const LongKey& key) const {
  std::uint64_t hash = key.size();
  for (const std::int32_t value : key) {
    hash = (hash ^ static_cast<std::uint32_t>(value)) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return hash;
}

const Mesh& StageCache::mesh_of(const Layout& layout) {
  if (!meshes_.empty() && !same_degrees(layout, meshes_.front().first)) meshes_.clear();
  for (const auto& [owner, mesh] : meshes_)
    if (owner.context_parallel == layout.context_parallel) return *mesh;
  meshes_.emplace_back(layout, std::make_unique<const Mesh>(layout, study_.fanouts));
  return *meshes_.back().second;
}

/// What is kept does not grow with the space: layouts far apart in it share little.
void StageCache::trim() {
  constexpr std::size_t kBases = 512;
  constexpr std::size_t kOthers = 16384;
  if (bases_.size() > kBases) bases_.clear();
  if (parameters_.size() > kOthers) parameters_.clear();
  if (runs_.size() > kOthers) runs_.clear();
  if (states_.size() > kOthers || roles_.size() > kOthers || data_ids_.size() > kOthers) {
    states_.clear();
    roles_.clear();
    data_ids_.clear(); // numbers go on: a number never stands for two settings
  }
}

StageCache::Base& StageCache::base_of(const LayoutView& view) {
  const Layout& l = *view.layout;
  Key key{l.tp,
          l.cp,
          l.ep,
          l.etp,
          l.micro_batch,
          (l.sequence_parallel ? 1 : 0) + (l.overlap.tp ? 2 : 0),
          static_cast<int>(l.context_parallel.kind),
          l.context_parallel.ulysses,
          static_cast<int>(l.expert_dispatch.kind),
          view.split_backward ? 1 : 0,
          l.pp > 1 ? 1 : 0,
          view.micro_batches > 1 ? 1 : 0};
  for (const Group group :
       {Group::tp, Group::cp, Group::cp_inner, Group::cp_outer, Group::ep, Group::etp, Group::ep_etp})
    add_shape(key, view.mesh->shape(group));
  auto& base = bases_[key];
  if (!base) {
    base = std::make_unique<Base>();
    base->context =
        make_context(study_.model, study_.job, study_.semantics, l, study_.cluster.device, view.split_backward);
  }
  return *base;
}

std::uint32_t StageCache::block_id(const BlockKey& key) {
  const auto id =
      static_cast<std::uint32_t>(std::find(block_keys_.begin(), block_keys_.end(), key) - block_keys_.begin());
  if (id == block_keys_.size()) block_keys_.push_back(key);
  return id;
}

Block StageCache::lower_block(const Base& base, std::uint32_t id, const RecomputeChoice& recompute) const {
  LayerContext context = base.context;
  context.layout.recompute = recompute;
  return make_block(context, block_keys_[id]);
}

const StageCache::TimedBlock& StageCache::block_of(Base& base, const LayoutView& view, std::uint32_t id,
                                                   const RecomputeChoice& recompute) {
  const BlockKey& key = block_keys_[id];
  const bool selective = (key.kind == BlockKind::layer && !key.recomputed) || key.kind == BlockKind::mtp;
  const auto [entry, added] =
      base.blocks.try_emplace(std::uint64_t{id} << 32 | (selective ? choice_key(recompute, key.shapes) : 0));
  TimedBlock& timed = entry->second;
  if (!added) return timed;
  const Block block = lower_block(base, id, recompute);
  timed.elements = data::elements_of(block);
  for (std::size_t p = 0; p < kSlotPasses.size(); ++p) {
    if (block.ops(kSlotPasses[p]).empty()) continue;
    timed.times[p] = block_time(block, kSlotPasses[p], *view.mesh, study_.cost, study_.host);
  }
  timed.memory.kind = block.kind;
  timed.memory.forward_memory = block.forward_memory;
  timed.memory.backward_memory = block.backward_memory;
  timed.memory.input_memory = block.input_memory;
  timed.memory.weight_memory = block.weight_memory;
  return timed;
}

std::int32_t StageCache::data_id(const LayoutView& view) {
  const Layout& l = *view.layout;
  Key key{static_cast<std::int32_t>(l.sharding.kind) * 4 +
              (l.sharding.reshard_after_forward ? 1 + (*l.sharding.reshard_after_forward ? 1 : 0) : 0),
          (l.offload.optimizer ? 1 : 0) | (l.overlap.dp_gradients ? 2 : 0) | (l.overlap.dp_parameters ? 4 : 0) |
              (view.micro_batches == 1 ? 8 : 0)};
  for (const Group group : {Group::data, Group::shard, Group::replicate, Group::expert_data, Group::expert_shard,
                            Group::tp, Group::embedding})
    add_shape(key, view.mesh->shape(group));
  const auto [entry, added] = data_ids_.try_emplace(key, next_data_);
  if (added) ++next_data_;
  return entry->second;
}

void StageCache::select(const LayoutView& view) {
  trim();
  view_ = view;
  base_ = &base_of(view);
  data_ = data_id(view);
  starts_.assign(1, 0);
  for (const int layers : *view.layers) starts_.push_back(starts_.back() + layers);
  scratch_.mesh = *view.mesh;
  scratch_.stages = view.layout->pp;
  scratch_.micro_batches = view.micro_batches;
  scratch_.split_backward = view.split_backward;
}

/// The first model layer from which on as many layers are, one by one, like those from `first` on: chunks that begin
/// with such layers are equal.
int StageCache::first_like(int first, int layers) {
  const auto all = static_cast<int>(study_.shapes.size());
  if (layers > all - first) return first;
  alike_.resize(static_cast<std::size_t>(all + 1) * static_cast<std::size_t>(all + 1), -1);
  int& like =
      alike_[static_cast<std::size_t>(layers) * static_cast<std::size_t>(all + 1) + static_cast<std::size_t>(first)];
  if (like >= 0) return like;
  const auto own = study_.shapes.begin() + first;
  for (like = 0; !std::equal(own, own + layers, study_.shapes.begin() + like);) ++like;
  return like;
}

StageCache::Kind StageCache::kind_of(const LayoutView& view, int depth) {
  Kind kind;
  kind.depth = depth;
  kind.layers = (*view.layers)[static_cast<std::size_t>(depth)];
  kind.ends = (depth == 0 ? 1 : 0) | (depth + 1 == static_cast<int>(view.layers->size()) ? 2 : 0);
  if (!study_.uniform) kind.first = first_like(starts_[static_cast<std::size_t>(depth)], kind.layers);
  kind.begins = depth == 0;
  return kind;
}

void StageCache::add_kind(Key& key, const Kind& kind) {
  for (const int value : {kind.layers, kind.ends, kind.first, kind.begins ? 1 : 0}) key.add(value);
}

std::size_t StageCache::sort_chunks(std::vector<std::uint32_t>& kinds) {
  const int stages = view_.layout->pp;
  const int chunks = view_.layout->schedule.chunks;
  kinds.resize(static_cast<std::size_t>(stages) * static_cast<std::size_t>(chunks));
  kinds_.clear();
  for (int depth = 0; depth < stages * chunks; ++depth) {
    const Kind kind = kind_of(view_, depth);
    std::size_t index = kinds_.size();
    while (index > 0 && kinds_[index - 1] != kind) --index; // most are like the one before
    if (index == 0) {
      kinds_.push_back(kind);
      index = kinds_.size();
    }
    kinds[static_cast<std::size_t>(depth % stages * chunks + depth / stages)] = static_cast<std::uint32_t>(index - 1);
  }
  known_.assign(kinds_.size(), {});
  return kinds_.size();
}

const StageCache::Runs& StageCache::runs_of(const LayoutView& view, const Kind& kind,
                                            const RecomputeChoice& recompute) {
  Key key;
  add_kind(key, kind);
  const bool full = recompute.kind == RecomputeKind::full;
  key.add(static_cast<std::int32_t>(recompute.kind) * 4 + (full ? static_cast<std::int32_t>(recompute.method) : 0));
  key.add(full ? recompute.count.value_or(0) : 0);
  const auto [entry, added] = runs_.try_emplace(key);
  Runs& runs = entry->second;
  if (!added) return runs;
  Layout layout = *view.layout;
  layout.recompute = recompute;
  for (const BlockKey& block : chunk_plan(study_.model, study_.shapes, layout, *view.layers, kind.depth).blocks) {
    const std::uint32_t id = block_id(block);
    if (!runs.list.empty() && runs.list.back().block == id)
      ++runs.list.back().count;
    else
      runs.list.push_back({id, 1});
    ++runs.blocks;
  }
  return runs;
}

/// Which collectives stand between a chunk's blocks depends on its parameters and on data parallelism, not on the
/// micro-batch or on what is recomputed, as long as as many blocks hold the parameters.
Role& StageCache::role_of(const LayoutView& view, const Kind& kind, const Runs& runs, int span) {
  const Layout& l = *view.layout;
  Key key{l.tp, l.ep, l.etp, l.pp > 1 ? 1 : 0, view.split_backward ? 1 : 0, data_, span};
  add_kind(key, kind);
  const auto [entry, added] = roles_.try_emplace(key);
  Role& role = entry->second;
  if (!added) return role;
  role.stage = kind.depth % l.pp;
  Chunk chunk;
  chunk.depth = kind.depth;
  chunk.index = kind.depth / l.pp;
  // The blocks' parameters are all that data parallelism looks at. Only their sums count for buckets: one parameter of
  // each sort stands for all.
  scratch_.blocks.clear();
  for (const Run& run : runs.list) {
    const data::Elements& sums = block_of(*base_, view, run.block, {}).elements;
    Block parameters;
    parameters.kind = block_keys_[run.block].kind;
    // Our own executor moves parameters one by one.
    parameters.parameters = study_.semantics.family == SemanticsFamily::foretrain
                                ? parameters_of(*base_, view, run.block)
                                : data::stand_ins(sums);
    chunk.blocks.insert(chunk.blocks.end(), static_cast<std::size_t>(run.count),
                        static_cast<int>(scratch_.blocks.size()));
    scratch_.blocks.push_back(std::move(parameters));
  }
  if (view.mesh->size(Group::data) > 1 || view.mesh->size(Group::expert_data) > 1) {
    LayerContext context = base_->context;
    context.layout = l;
    data::add_collectives(context, scratch_, role, chunk);
  }
  chunk.index = 0; // the role's only one
  role.chunks.push_back(std::move(chunk));
  return role;
}

void StageCache::profile(std::size_t kind, const RecomputeChoice& recompute, ChunkProfile& into) {
  const bool apart = span_of(recompute) > 1;
  if (apart)
    apart_ = {};
  else if (recompute.kind == RecomputeKind::selective && !known_[kind].has_last && !known_[kind].profiled)
    profile(kind, {}, into);
  if (recompute.kind == RecomputeKind::none) known_[kind].profiled = true;
  known_[kind].use_last = recompute.kind == RecomputeKind::none || recompute.kind == RecomputeKind::selective;
  const Runs& runs = runs_of(view_, kinds_[kind], recompute);
  Role& role = role_of(view_, kinds_[kind], runs, span_of(recompute));
  Chunk& chunk = role.chunks.front();
  chunk.blocks.clear();
  scratch_.blocks.clear();
  scratch_times_.clear();
  into = {};
  for (const Run& run : runs.list) {
    const TimedBlock& timed = block_of(*base_, view_, run.block, recompute);
    chunk.blocks.insert(chunk.blocks.end(), static_cast<std::size_t>(run.count),
                        static_cast<int>(scratch_.blocks.size()));
    scratch_.blocks.push_back(timed.memory);
    scratch_times_.push_back(&timed.times);
    for (const BlockTime& time : timed.times) into.evidence = std::max(into.evidence, time.evidence);
  }
  fill_chunk_profile(scratch_, role, chunk, scratch_times_, study_.cost, study_.host, into,
                     apart ? apart_ : known_[kind]);
}

Bytes StageCache::least_retained(int stage) {
  const Layout& l = *view_.layout;
  RecomputeChoice full;
  full.kind = RecomputeKind::full;
  std::optional<Bytes> least;
  for (int index = 0; index < l.schedule.chunks; ++index) {
    const Kind kind = kind_of(view_, index * l.pp + stage);
    Bytes retained;
    for (const Run& run : runs_of(view_, kind, full).list)
      retained += block_of(*base_, view_, run.block, full).memory.forward_memory.net * run.count;
    if ((kind.ends & 1) == 0) retained += boundary(); // its input comes in, its output goes on
    if ((kind.ends & 2) == 0) retained = retained - boundary();
    least = least ? std::min(*least, retained) : retained;
  }
  return *least;
}

Bytes StageCache::boundary() {
  const LayerContext& context = base_->context;
  return Bytes(context.tokens_sp * study_.model.hidden * context.width);
}

} // namespace foretrain
