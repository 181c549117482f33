#include <algorithm>

#include "core/program/axes/data_detail.h"

/// How our own executor moves what is sharded: weights are gathered straight into the tensor that the block uses,
/// gradients accumulate in a tensor of the block's own for one pass and are reduced in place from there, one parameter
/// after another.
namespace foretrain::data {

namespace {

const Block& block_at(const Program& program, const Chunk& chunk, int position) {
  return program.blocks[static_cast<std::size_t>(chunk.blocks[static_cast<std::size_t>(position)])];
}

/// An input or output table of the stage, for a block that has none of its own.
Parameter table_of(const LayerContext& c) {
  const std::int64_t h = c.model->hidden;
  return {"embedding", {c.vocab_padded, h}, {c.vocab_padded / c.layout.tp, h}, false, false};
}

/// Tables that a block reads and other blocks of its stage hold.
int tables_lacked(const LayerContext& c, const Block& block) {
  const bool tied = c.model->tied_embeddings;
  const auto has_table = [](const Parameter& parameter) { return parameter.name == "mtp/embedding"; };
  switch (block.kind) {
  case BlockKind::head:
    return tied && c.layout.pp == 1 ? 1 : 0;
  case BlockKind::mtp: // the output table, and the input table where that is another one and elsewhere
    return tied || std::any_of(block.parameters.begin(), block.parameters.end(), has_table) ? 1 : 2;
  case BlockKind::embedding:
  case BlockKind::layer:
    break;
  }
  return 0;
}

/// Parameters that a block reads, or whose gradients one pass over it adds to.
std::vector<Parameter> read_by(const LayerContext& c, const Block& block) {
  std::vector<Parameter> list = block.parameters;
  list.insert(list.end(), static_cast<std::size_t>(tables_lacked(c, block)), table_of(c));
  return list;
}
std::vector<Parameter> written_in(const LayerContext& c, const Block& block, Pass pass) {
  std::vector<Parameter> list;
  for (const int index : gradients_written(block, pass))
    list.push_back(block.parameters[static_cast<std::size_t>(index)]);
  if (pass != Pass::input) list.insert(list.end(), static_cast<std::size_t>(tables_lacked(c, block)), table_of(c));
  return list;
}

std::int64_t elements_of(const std::vector<Parameter>& list, bool expert) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : list)
    if (parameter.expert == expert) elements += parameter.local_elements();
  return elements;
}

/// What the others send before it is added: all parts but one's own of the largest parameter.
Bytes received(const LayerContext& c, const Mesh& mesh, const std::vector<Parameter>& list, bool expert) {
  if (c.layout.sharding.kind == ShardingKind::none) return Bytes(0);
  const std::int64_t ranks = mesh.size(expert ? Group::expert_shard : Group::shard);
  std::int64_t most = 0;
  for (const Parameter& parameter : list)
    if (parameter.expert == expert)
      most = std::max(most, (ranks - 1) * ((parameter.local_elements() + ranks - 1) / ranks));
  return Bytes(most * bits_of(detail::gradient_dtype(c)) / 8);
}

} // namespace

std::vector<int> gradients_written(const Block& block, Pass pass) {
  std::vector<int> list;
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    const bool norm = block.parameters[i].name.find("norm") != std::string::npos;
    if (pass == Pass::backward || norm == (pass == Pass::input)) list.push_back(static_cast<int>(i));
  }
  return list;
}

Bytes reduction_temporary(const LayerContext& c, const Program& program, const Chunk& chunk,
                          const std::vector<int>& positions, bool expert) {
  if (c.semantics->family != SemanticsFamily::foretrain) return Bytes(0);
  Bytes most;
  for (const int position : positions)
    most = std::max(most, received(c, program.mesh, block_at(program, chunk, position).parameters, expert));
  return most;
}

namespace detail {

void executor_reduction(const LayerContext& c, const Program& program, Chunk& chunk) {
  const Mesh& mesh = program.mesh;
  const std::int64_t width = bits_of(gradient_dtype(c)) / 8;
  const std::vector<Pass> passes =
      program.split_backward ? std::vector<Pass>{Pass::input, Pass::weight} : std::vector<Pass>{Pass::backward};
  for (const Pass pass : passes)
    for (int position = static_cast<int>(chunk.blocks.size()) - 1; position >= 0; --position) {
      const std::vector<Parameter> list = written_in(c, block_at(program, chunk, position), pass);
      std::int64_t apart = 0;
      for (const bool expert : {false, true})
        if (mesh.size(expert ? Group::expert_data : Group::data) > 1) apart += elements_of(list, expert);
      if (apart == 0) continue;
      ChunkOp place;
      place.pass = pass;
      place.position = position;
      place.covers = {position};
      place.freed_after = position;
      ChunkOp zero = place;
      zero.before = true;
      zero.op.segment = Segment::zero_gradients;
      zero.op.pass = Pass::step;
      zero.op.part = TimePart::dp;
      zero.op.kernels = {Kernel{}};
      zero.op.kernels.front().bytes = static_cast<double>(width * apart);
      zero.allocates = zero.frees = Bytes(width * apart);
      chunk.between.push_back(std::move(zero));
      for (const bool expert : {false, true}) {
        bool first = true;
        for (Op& op : reductions(c, mesh, elements_of(list, expert), expert)) {
          ChunkOp entry = place;
          entry.op = std::move(op);
          if (first) entry.allocates = entry.frees = received(c, mesh, list, expert);
          first = false;
          chunk.between.push_back(std::move(entry));
        }
      }
    }
}

void executor_gather(const LayerContext& c, const Program& program, Chunk& chunk, Pass pass) {
  const Mesh& mesh = program.mesh;
  const int count = static_cast<int>(chunk.blocks.size());
  for (int step = 0; step < count; ++step) {
    const int position = pass == Pass::forward ? step : count - 1 - step;
    const int before = pass == Pass::forward ? position - 1 : position + 1;
    const std::vector<Parameter> list = read_by(c, block_at(program, chunk, position));
    ChunkOp place;
    place.pass = pass;
    place.position = step == 0 ? position : before;
    place.before = true;
    place.needed_at = position;
    place.waits_for = step == 0 ? -1 : before;
    place.freed_after = position;
    place.covers = {position};
    const Elements elements{.dense = elements_of(list, false), .expert = elements_of(list, true)};
    for (const bool expert : {false, true})
      for (Op& op : gathers(c, mesh, elements, expert)) {
        ChunkOp entry = place;
        entry.allocates = entry.frees = op.bytes;
        entry.op = std::move(op);
        chunk.between.push_back(std::move(entry));
      }
  }
}

} // namespace detail
} // namespace foretrain::data
