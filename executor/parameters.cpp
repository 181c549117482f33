#include "executor/parameters.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/program/axes/data.h"
#include "executor/slices.h"

namespace foretrain {
namespace {

int index_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

bool lacks(const Block& block, const std::string& table) {
  return std::none_of(block.parameters.begin(), block.parameters.end(),
                      [&](const Parameter& parameter) { return base_name(parameter.name) == table; });
}

} // namespace

SlicePlace slice_place(const Plan& plan, const Mesh& mesh, int rank) {
  SlicePlace place;
  place.tp = plan.layout.tp;
  place.tp_index = mesh.coordinate(rank, Axis::tp);
  place.ep = plan.layout.ep;
  place.ep_index = index_in(mesh.members(Group::ep, rank), rank);
  place.etp = plan.layout.etp;
  place.etp_index = index_in(mesh.members(Group::etp, rank), rank);
  return place;
}

ParameterTable::ParameterTable(const Plan& plan, const Program& program, int rank, std::uint64_t seed,
                               const Storage& storage)
    : storage_(storage) {
  const Mesh& mesh = program.mesh;
  const Role& role = program.roles[static_cast<std::size_t>(mesh.coordinate(rank, Axis::pp))];
  const ShardingKind sharding = plan.layout.sharding.kind;
  const bool gradients_sharded = sharding == ShardingKind::parameters || sharding == ShardingKind::gradients;
  gathers_ = sharding == ShardingKind::parameters;
  reduces_ = gradients_sharded;
  const auto index_of = [&](Group group) { return index_in(mesh.members(group, rank), rank); };
  std::int64_t weight_total = 0;
  std::int64_t gradient_total = 0;
  for (const Chunk& chunk : role.chunks) {
    blocks_.emplace_back();
    specs_.emplace_back();
    for (std::size_t position = 0; position < chunk.blocks.size(); ++position) {
      const Block& block = program.blocks[static_cast<std::size_t>(chunk.blocks[position])];
      const std::size_t first = entries_.size();
      for (const Parameter& parameter : block.parameters) {
        ParameterEntry entry;
        Place place;
        entry.name = global_name(parameter, chunk.layers[position], plan.model.tied_embeddings);
        entry.spec = &parameter;
        entry.elements = parameter.local_elements();
        const Group shard = parameter.expert ? Group::expert_shard : Group::shard;
        const Group all = parameter.expert ? Group::expert_data : Group::data;
        if (sharding != ShardingKind::none) {
          place.shards = mesh.size(shard);
          place.shard = index_of(shard);
        }
        place.weight_apart = sharding == ShardingKind::parameters && place.shards > 1;
        place.gradient_apart = gradients_sharded && mesh.size(all) > 1;
        // Replicas of a shard lie mesh.size(shard) members apart in the whole group.
        const int replica = sharding == ShardingKind::none ? index_of(all) : index_of(all) / mesh.size(shard);
        entry.tied_copy = entry.name == "embedding" && block.kind != BlockKind::embedding;
        entry.counted =
            replica == 0 && !entry.tied_copy && (!parameter.replicated_tp || mesh.coordinate(rank, Axis::tp) == 0);
        place_entry(entry, place, weight_total, gradient_total);
        entries_.push_back(std::move(entry));
        places_.push_back(std::move(place));
      }
      blocks_.back().push_back({first, entries_.size()});
      specs_.back().push_back(&block);
    }
  }
  weights_ = at::zeros({weight_total}, at::TensorOptions(storage.weights).device(storage.device));
  gradients_ = at::zeros({gradient_total}, at::TensorOptions(storage.gradients).device(storage.device));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    bind(i);
    fill(i, plan, program, rank, seed);
  }
}

void ParameterTable::place_entry(ParameterEntry& entry, Place& place, std::int64_t& weights,
                                 std::int64_t& gradients) const {
  place.part = (entry.elements + place.shards - 1) / place.shards;
  entry.owned_first = std::min(entry.elements, place.part * place.shard);
  entry.owned_count = std::min(place.part, entry.elements - entry.owned_first);
  place.weight = weights;
  place.gradient = gradients;
  weights += place.weight_apart ? place.part : place.part * place.shards;
  gradients += place.gradient_apart ? place.part : place.part * place.shards;
}

/// Views into the persistent buffers.
void ParameterTable::bind(std::size_t index) {
  ParameterEntry& entry = entries_[index];
  const Place& place = places_[index];
  const auto whole = [&](const at::Tensor& buffer, std::int64_t offset) {
    return buffer.narrow(0, offset, entry.elements).view(entry.spec->local);
  };
  if (!place.weight_apart) entry.weight = whole(weights_, place.weight);
  if (!place.gradient_apart) entry.gradient = whole(gradients_, place.gradient);
  entry.owned_weight =
      weights_.narrow(0, place.weight + (place.weight_apart ? 0 : entry.owned_first), entry.owned_count);
  entry.owned_gradient =
      gradients_.narrow(0, place.gradient + (place.gradient_apart ? 0 : entry.owned_first), entry.owned_count);
}

void ParameterTable::fill(std::size_t index, const Plan& plan, const Program& program, int rank, std::uint64_t seed) {
  ParameterEntry& entry = entries_[index];
  const Slice slice = slice_of(*entry.spec, plan.model, slice_place(plan, program.mesh, rank));
  std::vector<double> values = initial_values(entry.name, *entry.spec, slice, plan.model, seed);
  at::Tensor all = at::from_blob(values.data(), {entry.elements}, at::kDouble);
  if (!storage_.device.is_cpu()) all = all.to(storage_.weights); // rounded where every layout rounds
  if (places_[index].weight_apart)
    entry.owned_weight.copy_(all.narrow(0, entry.owned_first, entry.owned_count));
  else
    entry.weight.view(-1).copy_(all);
}

ParameterEntry& ParameterTable::at(int chunk, int position, int index) {
  const Span& span = blocks_[static_cast<std::size_t>(chunk)][static_cast<std::size_t>(position)];
  return entries_[span.first + static_cast<std::size_t>(index)];
}

std::size_t ParameterTable::table_index() const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].name == "embedding") return i;
  FORETRAIN_CHECK(false, "who reads the input table shares its stage, or that of a copy");
}

std::size_t ParameterTable::output_table_index() const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].name == "head") return i;
  return table_index();
}

ParameterEntry& ParameterTable::table() {
  return entries_[table_index()];
}

ParameterEntry& ParameterTable::output_table() {
  return entries_[output_table_index()];
}

std::vector<std::size_t> ParameterTable::borrowed(const Block& block) const {
  std::vector<std::size_t> list;
  const bool reads_input = block.kind == BlockKind::mtp;
  const bool reads_output = block.kind == BlockKind::mtp || block.kind == BlockKind::head;
  if (reads_input && lacks(block, "embedding")) list.push_back(table_index());
  if (!reads_output || !lacks(block, "head")) return list;
  const std::size_t output = output_table_index();
  if (list.empty() || list.front() != output) list.push_back(output);
  return list;
}

std::vector<std::size_t> ParameterTable::of_block(int chunk, int position) const {
  const auto c = static_cast<std::size_t>(chunk);
  const auto p = static_cast<std::size_t>(position);
  std::vector<std::size_t> list;
  for (std::size_t i = blocks_[c][p].first; i < blocks_[c][p].end; ++i) list.push_back(i);
  if (!gathers_) return list;
  const std::vector<std::size_t> tables = borrowed(*specs_[c][p]);
  list.insert(list.end(), tables.begin(), tables.end());
  return list;
}

std::vector<std::size_t> ParameterTable::written(int chunk, int position, Pass pass) const {
  const auto c = static_cast<std::size_t>(chunk);
  const auto p = static_cast<std::size_t>(position);
  std::vector<std::size_t> list;
  for (const int index : data::gradients_written(*specs_[c][p], pass))
    list.push_back(blocks_[c][p].first + static_cast<std::size_t>(index));
  if (!reduces_ || pass == Pass::input) return list;
  const std::vector<std::size_t> tables = borrowed(*specs_[c][p]);
  list.insert(list.end(), tables.begin(), tables.end());
  return list;
}

std::vector<ParameterEntry*> ParameterTable::of_blocks(int chunk, const std::vector<int>& positions, bool experts) {
  std::vector<ParameterEntry*> list;
  for (const int position : positions)
    for (const std::size_t i : of_block(chunk, position))
      if (entries_[i].spec->expert == experts) list.push_back(&entries_[i]);
  return list;
}

std::vector<ParameterEntry*> ParameterTable::written_by(int chunk, int position, Pass pass, bool experts) {
  std::vector<ParameterEntry*> list;
  for (const std::size_t i : written(chunk, position, pass))
    if (entries_[i].spec->expert == experts) list.push_back(&entries_[i]);
  return list;
}

std::vector<at::Tensor> ParameterTable::gradient_runs(const std::vector<ParameterEntry*>& entries) const {
  std::vector<at::Tensor> runs;
  std::int64_t first = 0;
  std::int64_t end = 0;
  const auto close = [&] {
    if (end > first) runs.push_back(gradients_.narrow(0, first, end - first));
  };
  for (const ParameterEntry* entry : entries) {
    const Place& place = places_[static_cast<std::size_t>(entry - entries_.data())];
    if (place.gradient_apart) {
      runs.push_back(entry->gradient.view(-1));
      continue;
    }
    if (place.gradient != end) {
      close();
      first = end = place.gradient;
    }
    end += entry->elements;
  }
  close();
  return runs;
}

std::vector<ParameterEntry*> ParameterTable::all(bool experts) {
  std::vector<ParameterEntry*> list;
  for (ParameterEntry& entry : entries_)
    if (entry.spec->expert == experts) list.push_back(&entry);
  return list;
}

at::Tensor ParameterTable::by_shards(const ParameterEntry& entry, bool weight) const {
  const Place& place = places_[static_cast<std::size_t>(&entry - entries_.data())];
  at::Tensor block = place.gradient_block;
  if (weight) block = place.weight_blocks.empty() ? at::Tensor() : place.weight_blocks.back().whole;
  if (block.defined()) return block.view({place.shards, place.part});
  FORETRAIN_CHECK(!(weight ? place.weight_apart : place.gradient_apart), "a sharded parameter is open while it moves");
  return (weight ? weights_.narrow(0, place.weight, place.part * place.shards)
                 : gradients_.narrow(0, place.gradient, place.part * place.shards))
      .view({place.shards, place.part});
}

at::Tensor ParameterTable::own_shard(const ParameterEntry& entry, bool weight) const {
  const Place& place = places_[static_cast<std::size_t>(&entry - entries_.data())];
  if (weight && place.weight_apart) return weights_.narrow(0, place.weight, place.part).view({1, place.part});
  return by_shards(entry, weight).narrow(0, place.shard, 1);
}

void ParameterTable::open_weights(int chunk, int position) {
  for (const std::size_t i : of_block(chunk, position)) {
    Place& place = places_[i];
    const auto is_open = [&](const OpenWeight& open) { return open.chunk == chunk && open.position == position; };
    std::vector<OpenWeight>& blocks = place.weight_blocks;
    if (!place.weight_apart || std::any_of(blocks.begin(), blocks.end(), is_open)) continue;
    blocks.push_back({chunk, position, at::empty({place.part * place.shards}, weights_.options())});
    bind_open_weight(i);
  }
}

/// What several blocks have gathered is the same: any one will do.
void ParameterTable::bind_open_weight(std::size_t index) {
  ParameterEntry& entry = entries_[index];
  const std::vector<OpenWeight>& blocks = places_[index].weight_blocks;
  entry.weight =
      blocks.empty() ? at::Tensor() : blocks.back().whole.narrow(0, 0, entry.elements).view(entry.spec->local);
}

void ParameterTable::close_weights(int chunk, int position) {
  for (const std::size_t i : of_block(chunk, position)) {
    if (!places_[i].weight_apart) continue;
    std::vector<OpenWeight>& blocks = places_[i].weight_blocks;
    blocks.erase(
        std::remove_if(blocks.begin(), blocks.end(),
                       [&](const OpenWeight& open) { return open.chunk == chunk && open.position == position; }),
        blocks.end());
    bind_open_weight(i);
  }
}

void ParameterTable::open_gradients(int chunk, int position, Pass pass) {
  for (const std::size_t i : written(chunk, position, pass)) {
    Place& place = places_[i];
    if (!place.gradient_apart) continue;
    place.gradient_block = at::zeros({place.part * place.shards}, gradients_.options());
    entries_[i].gradient = place.gradient_block.narrow(0, 0, entries_[i].elements).view(entries_[i].spec->local);
  }
}

void ParameterTable::close_gradients(int chunk, int position, Pass pass) {
  for (const std::size_t i : written(chunk, position, pass)) {
    Place& place = places_[i];
    if (!place.gradient_apart) continue;
    ParameterEntry& entry = entries_[i];
    entry.owned_gradient.add_(place.gradient_block.narrow(0, entry.owned_first, entry.owned_count));
    place.gradient_block.reset();
    entry.gradient.reset();
  }
}

void ParameterTable::zero_gradients() {
  gradients_.zero_();
}

void ParameterTable::scale_gradients(double factor) {
  gradients_.mul_(factor);
}

void ParameterTable::scale_gradients(const at::Tensor& factor) {
  gradients_.mul_(factor.to(gradients_.scalar_type()));
}

} // namespace foretrain
