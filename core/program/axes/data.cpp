#include "core/program/axes/data.h"
#include "core/program/axes/data_detail.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace foretrain::data {
namespace detail {

Op transfer(Collective kind, Group group, DType dtype, std::int64_t elements, Stream stream) {
  Op op;
  op.kind = OpKind::collective;
  op.pass = Pass::step;
  op.stream = stream;
  op.part = TimePart::dp;
  op.collective = kind;
  op.group = group;
  op.dtype = dtype;
  op.bytes = Bytes(elements * bits_of(dtype) / 8);
  return op;
}

DType gradient_dtype(const LayerContext& c) {
  switch (c.job->precision) {
  case Precision::fp32:
    return DType::fp32;
  case Precision::fp64:
    return DType::fp64;
  case Precision::bf16:
  case Precision::fp16:
  case Precision::fp8_delayed:
  case Precision::fp8_current:
  case Precision::fp8_blockwise:
  case Precision::mxfp8:
  case Precision::nvfp4:
    return c.job->gradient;
  }
  return c.job->gradient;
}

bool sums_whole_gradients(const LayerContext& c) {
  return c.semantics->family == SemanticsFamily::megatron && !c.semantics->dp_gradient_overlap;
}

std::vector<Op> reductions(const LayerContext& c, const Mesh& mesh, std::int64_t elements, bool expert) {
  std::vector<Op> ops;
  if (elements == 0) return ops;
  const DType dtype = gradient_dtype(c);
  const Group all = expert ? Group::expert_data : Group::data;
  const Group shard = expert ? Group::expert_shard : Group::shard;
  if (mesh.size(all) == 1) return ops;
  if (sums_whole_gradients(c)) {
    ops.push_back(transfer(Collective::all_reduce, all, statistics_dtype(c), elements, Stream::gradients));
    return ops;
  }
  if (c.layout.sharding.kind == ShardingKind::none) {
    ops.push_back(transfer(Collective::all_reduce, all, dtype, elements, Stream::gradients));
    return ops;
  }
  if (mesh.size(shard) > 1)
    ops.push_back(transfer(Collective::reduce_scatter, shard, dtype, elements, Stream::gradients));
  const int replicas = mesh.size(all) / mesh.size(shard);
  if (replicas > 1)
    ops.push_back(
        transfer(Collective::all_reduce, Group::replicate, dtype, elements / mesh.size(shard), Stream::gradients));
  return ops;
}

Bytes gathered_bytes(const LayerContext& c, std::int64_t elements, std::int64_t quantised) {
  if (!c.job->quantised_weights || !c.low.active) quantised = 0;
  const double bytes = c.low.gathered_weight * static_cast<double>(quantised);
  return Bytes((elements - quantised) * c.width + std::llround(bytes));
}

namespace {

std::vector<Op> gather(const LayerContext& c, const Mesh& mesh, std::int64_t elements, std::int64_t quantised,
                       bool expert) {
  std::vector<Op> ops;
  const Group shard = expert ? Group::expert_shard : Group::shard;
  if (elements == 0 || mesh.size(shard) == 1 || c.layout.sharding.kind == ShardingKind::none) return ops;
  ops.push_back(transfer(Collective::all_gather, shard, c.dtype, elements, Stream::parameters));
  ops.back().bytes = gathered_bytes(c, elements, quantised);
  return ops;
}

} // namespace

std::vector<Op> trained_gathers(const LayerContext& c, const Mesh& mesh, const Elements& e, bool expert) {
  // Adapters run in 16 bits: where something is frozen, nothing that is trained is quantised.
  const std::int64_t frozen = expert ? e.frozen_expert : e.frozen_dense;
  const std::int64_t quantised = frozen > 0 ? 0 : expert ? e.quantised_expert : e.quantised_dense;
  return gather(c, mesh, expert ? e.trained_expert() : e.trained_dense(), quantised, expert);
}

std::vector<Op> gathers(const LayerContext& c, const Mesh& mesh, const Elements& e, bool expert) {
  return expert ? gather(c, mesh, e.expert, e.quantised_expert, true)
                : gather(c, mesh, e.dense, e.quantised_dense, false);
}

Elements elements_of_role(const Program& program, const Role& role) {
  Elements total;
  for (const Chunk& chunk : role.chunks)
    for (const int block : chunk.blocks) total += elements_of(program.blocks[static_cast<std::size_t>(block)]);
  return total;
}

bool reshards(const LayerContext& c) {
  const Semantics& s = *c.semantics;
  const bool by_default = c.layout.pp > 1 ? s.reshard_after_forward_pp : s.reshard_after_forward;
  return c.layout.sharding.reshard_after_forward.value_or(by_default);
}

} // namespace detail

namespace {

using namespace detail;

const Block& block_at(const Program& program, const Chunk& chunk, int position) {
  return program.blocks[static_cast<std::size_t>(chunk.blocks[static_cast<std::size_t>(position)])];
}

/// Block positions first … end - 1.
std::vector<int> range(int first, int end) {
  std::vector<int> positions(static_cast<std::size_t>(end - first));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

void append(Chunk& chunk, std::vector<Op> ops, const ChunkOp& place) {
  bool first = true;
  for (Op& op : ops) {
    ChunkOp entry = place;
    entry.op = std::move(op);
    if (!first) {
      entry.allocates = Bytes(0);
      entry.frees = Bytes(0);
    }
    first = false;
    chunk.between.push_back(std::move(entry));
  }
}

Pass gradient_pass(const Program& program) {
  return program.split_backward ? Pass::weight : Pass::backward;
}

/// Megatron's distributed data parallel: gradients accumulate in place and are reduced once per step, in buckets of
/// max(floor, per_rank · dp) parameters, but only where the semantics allow buckets; elsewhere one after the whole
/// chunk.
void bucketed_reduction(const LayerContext& c, const Program& program, const Role& role, Chunk& chunk) {
  const Semantics& s = *c.semantics;
  if (!c.layout.overlap.dp_gradients || !s.dp_gradient_overlap) return;
  const bool splits = !s.buckets_only_first_chunk || (role.stage == 0 && chunk.index == 0);
  const std::int64_t bucket = std::max(s.bucket_floor, s.bucket_per_rank * program.mesh.size(Group::data));
  Elements pending;
  int dense_end = static_cast<int>(chunk.blocks.size()); // a bucket covers the positions below
  int expert_end = dense_end;
  for (int position = dense_end - 1; position >= 0; --position) {
    const Elements here = elements_of(block_at(program, chunk, position));
    pending.dense += here.trained_dense();
    pending.expert += here.trained_expert();
    ChunkOp place;
    place.pass = gradient_pass(program);
    place.position = position;
    place.when = When::last_micro_batch;
    const bool last = position == 0;
    // Multi-token prediction adds to the gradient of the head's table after the head.
    if (!last && block_at(program, chunk, position - 1).kind == BlockKind::mtp) continue;
    if (last || (splits && pending.dense >= bucket)) {
      place.covers = range(position, std::exchange(dense_end, position));
      place.allocates = place.frees = reduction_temporary(c, program, chunk, place.covers, false);
      place.freed_after = position;
      append(chunk, reductions(c, program.mesh, pending.dense, false), place);
      pending.dense = 0;
    }
    if (last || (splits && pending.expert >= bucket)) {
      place.covers = range(position, std::exchange(expert_end, position));
      place.allocates = place.frees = reduction_temporary(c, program, chunk, place.covers, true);
      place.freed_after = position;
      append(chunk, reductions(c, program.mesh, pending.expert, true), place);
      pending.expert = 0;
    }
  }
}

/// Gather of the updated weights before a chunk's first forward, bucket by bucket.
void bucketed_gather(const LayerContext& c, const Program& program, Chunk& chunk) {
  const Semantics& s = *c.semantics;
  if (c.layout.sharding.kind != ShardingKind::optimizer && c.layout.sharding.kind != ShardingKind::gradients) return;
  if (!c.layout.overlap.dp_parameters || !s.dp_parameter_overlap) return;
  const std::int64_t bucket = std::max(s.bucket_floor, s.bucket_per_rank * program.mesh.size(Group::data));
  const int count = static_cast<int>(chunk.blocks.size());
  Elements pending;
  int needed_at = 0;
  for (int position = 0; position < count; ++position) {
    const Elements here = elements_of(block_at(program, chunk, position));
    pending += here;
    if (position + 1 < count && pending.trained_dense() + pending.trained_expert() < bucket) continue;
    ChunkOp place;
    place.pass = Pass::forward;
    place.position = 0;
    place.before = true;
    place.when = When::first_micro_batch;
    place.needed_at = needed_at;
    place.covers = range(needed_at, position + 1);
    append(chunk, trained_gathers(c, program.mesh, pending, false), place);
    append(chunk, trained_gathers(c, program.mesh, pending, true), place);
    pending = {};
    needed_at = position + 1;
  }
}

/// Gradients sharded while they accumulate: each block reduces in every micro-batch, through one block-sized buffer.
void reduction_per_block(const LayerContext& c, const Program& program, Chunk& chunk, When when) {
  const std::int64_t width = bits_of(gradient_dtype(c)) / 8;
  for (int position = static_cast<int>(chunk.blocks.size()) - 1; position >= 0; --position) {
    const Elements here = elements_of(block_at(program, chunk, position));
    ChunkOp place;
    place.pass = gradient_pass(program);
    place.position = position;
    place.when = when;
    place.allocates = Bytes(width * (here.trained_dense() + here.trained_expert()));
    place.frees = place.allocates;
    place.covers = {position};
    place.freed_after = std::max(0, position - 1); // the input of one reduction stays until the next one is issued
    append(chunk, reductions(c, program.mesh, here.trained_dense(), false), place);
    if (here.trained_dense() > 0) place.allocates = place.frees = Bytes(0);
    append(chunk, reductions(c, program.mesh, here.trained_expert(), true), place);
  }
}

/// FSDP and ZeRO-3 in one pass: each block's weights are gathered one block ahead. The flat result and the copy that
/// the block uses live side by side until the block is done (torch/distributed/fsdp/_fully_shard).
void gather_per_block(const LayerContext& c, const Program& program, Chunk& chunk, Pass pass, When when) {
  const int count = static_cast<int>(chunk.blocks.size());
  for (int step = 0; step < count; ++step) {
    const int position = pass == Pass::forward ? step : count - 1 - step;
    const int before = pass == Pass::forward ? position - 1 : position + 1;
    const Elements here = elements_of(block_at(program, chunk, position));
    const Bytes whole = gathered_bytes(c, here.dense + here.expert, here.quantised_dense + here.quantised_expert);
    const double trained = static_cast<double>(here.trained_dense() + here.trained_expert());
    ChunkOp flat;
    flat.pass = pass;
    flat.position = step == 0 ? position : before;
    flat.before = true;
    flat.when = when;
    flat.needed_at = position;
    flat.waits_for = step == 0 ? -1 : before;
    flat.allocates = whole;
    flat.frees = whole;
    flat.freed_after = position;
    flat.covers = {position};
    append(chunk, gathers(c, program.mesh, here, false), flat);
    if (here.dense > 0) flat.allocates = flat.frees = Bytes(0);
    append(chunk, gathers(c, program.mesh, here, true), flat);

    // Copy out of the flat buffer; in backward the unsharded gradients of the block stand beside it.
    ChunkOp copy;
    copy.pass = pass;
    copy.position = position;
    copy.before = true;
    copy.when = when;
    copy.op.kind = OpKind::compute;
    copy.op.pass = Pass::step;
    copy.op.part = TimePart::dp;
    Kernel kernel;
    kernel.bytes = 2.0 * static_cast<double>(whole.value);
    copy.op.kernels = {kernel};
    const Bytes gradients(static_cast<std::int64_t>(trained) * c.width);
    copy.allocates = pass == Pass::forward ? whole : whole + gradients;
    copy.frees = copy.allocates;
    copy.freed_after = position;
    if (whole.value > 0) chunk.between.push_back(copy);
  }
}

} // namespace

Elements elements_of(const Block& block) {
  Elements elements;
  for (const Parameter& parameter : block.parameters) {
    const std::int64_t local = parameter.local_elements();
    (parameter.expert ? elements.expert : elements.dense) += local;
    if (parameter.frozen) (parameter.expert ? elements.frozen_expert : elements.frozen_dense) += local;
    if (parameter.quantised) (parameter.expert ? elements.quantised_expert : elements.quantised_dense) += local;
    if (parameter.partial_tp && !parameter.frozen) elements.tp_partial += local;
  }
  return elements;
}

Elements& Elements::operator+=(const Elements& other) {
  dense += other.dense;
  expert += other.expert;
  tp_partial += other.tp_partial;
  frozen_dense += other.frozen_dense;
  frozen_expert += other.frozen_expert;
  quantised_dense += other.quantised_dense;
  quantised_expert += other.quantised_expert;
  return *this;
}

std::vector<Parameter> stand_ins(const Elements& e) {
  std::vector<Parameter> list;
  const auto add = [&list](std::int64_t elements, bool expert, bool partial, bool quantised, bool frozen) {
    if (elements > 0) list.push_back({"", {}, {elements}, expert, partial, quantised, frozen, partial});
  };
  // Sums do not say how sorts overlap. Quantised weights are frozen where anything is; else in parts as far as may
  // be.
  const bool frozen = e.frozen_dense > 0;
  const std::int64_t both = frozen ? 0 : std::min(e.tp_partial, e.quantised_dense);
  add(e.frozen_dense - (frozen ? e.quantised_dense : 0), false, false, false, true);
  add(frozen ? e.quantised_dense : 0, false, false, true, true);
  add(both, false, true, true, false);
  add(e.tp_partial - both, false, true, false, false);
  add(frozen ? 0 : e.quantised_dense - both, false, false, true, false);
  add(e.trained_dense() - e.tp_partial - (frozen ? 0 : e.quantised_dense - both), false, false, false, false);
  const bool frozen_experts = e.frozen_expert > 0;
  add(e.quantised_expert, true, false, true, frozen_experts);
  add(frozen_experts ? e.frozen_expert - e.quantised_expert : 0, true, false, false, true);
  add(e.trained_expert() - (frozen_experts ? 0 : e.quantised_expert), true, false, false, false);
  return list;
}

void add_collectives(const LayerContext& c, const Program& program, Role& role, Chunk& chunk) {
  switch (c.layout.sharding.kind) {
  case ShardingKind::none:
  case ShardingKind::optimizer:
    bucketed_gather(c, program, chunk);
    bucketed_reduction(c, program, role, chunk);
    break;
  case ShardingKind::gradients:
    bucketed_gather(c, program, chunk);
    if (c.semantics->family == SemanticsFamily::foretrain)
      executor_reduction(c, program, chunk);
    else
      reduction_per_block(c, program, chunk, When::every);
    break;
  case ShardingKind::parameters: {
    if (c.semantics->family == SemanticsFamily::foretrain) {
      executor_gather(c, program, chunk, Pass::forward);
      executor_gather(c, program, chunk, program.split_backward ? Pass::input : Pass::backward);
      executor_reduction(c, program, chunk);
      break;
    }
    // Kept unsharded between micro-batches under a pipeline: gathered in the first forward, reduced in the last
    // backward.
    const bool every = reshards(c);
    const Pass backward = program.split_backward ? Pass::input : Pass::backward;
    gather_per_block(c, program, chunk, Pass::forward, every ? When::every : When::first_micro_batch);
    if (every) gather_per_block(c, program, chunk, backward, When::every);
    reduction_per_block(c, program, chunk, every ? When::every : When::last_micro_batch);
    break;
  }
  }
}

} // namespace foretrain::data
