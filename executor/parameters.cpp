#include "executor/parameters.h"

#include <algorithm>

#include "core/base/check.h"
#include "executor/slices.h"

namespace foretrain {
namespace {

int index_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

} // namespace

ParameterTable::ParameterTable(const Plan& plan, const Program& program, int rank, std::uint64_t seed,
                               at::ScalarType type) {
  const Mesh& mesh = program.mesh;
  const Role& role = program.roles[static_cast<std::size_t>(mesh.coordinate(rank, Axis::pp))];
  if (plan.layout.sharding.kind != ShardingKind::none) {
    shards_ = mesh.size(Group::shard);
    shard_ = index_in(mesh.members(Group::shard, rank), rank);
  }
  const int tp_index = mesh.coordinate(rank, Axis::tp);
  const bool first_replica = shards_ > 1 ? index_in(mesh.members(Group::replicate, rank), rank) == 0
                                         : index_in(mesh.members(Group::data, rank), rank) == 0;
  std::int64_t total = 0;
  for (const Chunk& chunk : role.chunks) {
    blocks_.emplace_back();
    for (std::size_t position = 0; position < chunk.blocks.size(); ++position) {
      const std::size_t first = entries_.size();
      for (const Parameter& parameter : program.blocks[static_cast<std::size_t>(chunk.blocks[position])].parameters) {
        ParameterEntry entry;
        entry.name = global_name(parameter, chunk.layers[position], plan.model.tied_embeddings);
        entry.spec = &parameter;
        entry.elements = parameter.local_elements();
        entry.owned_first = std::min(entry.elements, part(entry) * shard_);
        entry.owned_count = std::min(part(entry), entry.elements - entry.owned_first);
        entry.tied_copy = parameter.name == "head" && plan.model.tied_embeddings;
        entry.counted = first_replica && !entry.tied_copy && (!parameter.replicated_tp || tp_index == 0);
        total += entry.elements;
        entries_.push_back(std::move(entry));
      }
      blocks_.back().push_back({first, entries_.size()});
    }
  }
  weights_ = at::zeros({total}, type);
  gradients_ = at::zeros({total}, type);
  std::int64_t offset = 0;
  for (ParameterEntry& entry : entries_) {
    entry.weight = weights_.narrow(0, offset, entry.elements).view(entry.spec->local);
    entry.gradient = gradients_.narrow(0, offset, entry.elements).view(entry.spec->local);
    offset += entry.elements;
    const Slice slice = slice_of(*entry.spec, plan.model, plan.layout.tp, tp_index);
    std::vector<double> values = initial_values(entry.name, *entry.spec, slice, plan.model, seed);
    entry.weight.copy_(at::from_blob(values.data(), entry.spec->local, at::kDouble));
  }
}

ParameterEntry& ParameterTable::at(int chunk, int position, int index) {
  const Range& range = blocks_[static_cast<std::size_t>(chunk)][static_cast<std::size_t>(position)];
  return entries_[range.first + static_cast<std::size_t>(index)];
}

ParameterEntry& ParameterTable::table() {
  for (ParameterEntry& entry : entries_)
    if (entry.name == "embedding") return entry;
  FORETRAIN_CHECK(false, "a head without a table shares the stage of the embedding");
}

ParameterTable::Range ParameterTable::of_blocks(int chunk, const std::vector<int>& positions) const {
  FORETRAIN_CHECK(!positions.empty(), "a bucket covers blocks");
  const std::vector<Range>& blocks = blocks_[static_cast<std::size_t>(chunk)];
  return {blocks[static_cast<std::size_t>(positions.front())].first,
          blocks[static_cast<std::size_t>(positions.back())].end};
}

at::Tensor ParameterTable::gradients(const Range& range) const {
  std::int64_t before = 0;
  std::int64_t inside = 0;
  for (std::size_t i = 0; i < range.end; ++i) (i < range.first ? before : inside) += entries_[i].elements;
  return gradients_.narrow(0, before, inside);
}

std::int64_t ParameterTable::packed_size(const Range& range) const {
  std::int64_t size = 0;
  for (std::size_t i = range.first; i < range.end; ++i) size += part(entries_[i]);
  return size;
}

void ParameterTable::copy_shard(const Range& range, bool weights, int shard, at::Tensor packed, bool into) const {
  std::int64_t offset = 0;
  for (std::size_t i = range.first; i < range.end; ++i) {
    const ParameterEntry& entry = entries_[i];
    const std::int64_t first = std::min(entry.elements, part(entry) * shard);
    const std::int64_t count = std::min(part(entry), entry.elements - first);
    at::Tensor mine = (weights ? entry.weight : entry.gradient).view(-1).narrow(0, first, count);
    at::Tensor there = packed.narrow(0, offset, count);
    (into ? there : mine).copy_(into ? mine : there);
    offset += part(entry);
  }
}

at::Tensor ParameterTable::pack_shards(const Range& range, bool weights) const {
  const std::int64_t size = packed_size(range);
  at::Tensor packed = at::zeros({size * shards_}, gradients_.options());
  for (int shard = 0; shard < shards_; ++shard)
    copy_shard(range, weights, shard, packed.narrow(0, shard * size, size), true);
  return packed;
}

void ParameterTable::unpack_shards(const Range& range, bool weights, const at::Tensor& packed) {
  const std::int64_t size = packed_size(range);
  for (int shard = 0; shard < shards_; ++shard)
    copy_shard(range, weights, shard, packed.narrow(0, shard * size, size), false);
}

at::Tensor ParameterTable::pack_owned(const Range& range, bool weights) const {
  at::Tensor packed = at::zeros({packed_size(range)}, gradients_.options());
  copy_shard(range, weights, shard_, packed, true);
  return packed;
}

void ParameterTable::unpack_owned(const Range& range, bool weights, const at::Tensor& packed) {
  copy_shard(range, weights, shard_, packed, false);
}

} // namespace foretrain
