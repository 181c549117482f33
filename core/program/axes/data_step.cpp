#include <algorithm>
#include <numeric>
#include <utility>

#include "core/program/axes/data_detail.h"
#include "core/program/layers/executor_scratch.h"
#include "core/program/state.h"

namespace foretrain::data {

using namespace detail;

namespace {

Op step_compute(Segment segment, TimePart part, double bytes) {
  Op op;
  op.kind = OpKind::compute;
  op.segment = segment;
  op.pass = Pass::step;
  op.part = part;
  Kernel kernel;
  kernel.dtype = DType::fp32;
  kernel.bytes = bytes;
  op.kernels = {kernel};
  return op;
}

/// One large operator: nothing is lost beyond what it moves, as over scores.
Op large(Op op) {
  for (Kernel& kernel : op.kernels) kernel.heads = 1;
  return op;
}

std::int64_t owned(std::int64_t elements, int parts) {
  return (elements + parts - 1) / parts;
}

/// Bytes per weight that operators of their own move around the sum of whole gradients, `w` bytes wide
/// (Aleph-Alpha/scaling@78489292b core/optimizer/allreduce.py: joined, divided, cast; copied back and apart).
constexpr double before_whole_sum(double w) {
  return 2 * w + 2 * w + w + 4;
}
constexpr double after_whole_sum(double w) {
  return 4 + w + 2 * w;
}
/// Whole gradients scaled, and their norm (core/optimizer/parameter_group.py scale_grads_and_get_grad_norm_squared).
constexpr double whole_norm(double w) {
  return 2 * w + w;
}
/// Gathered weights come out of a joint buffer (all_gather into a list, ProcessGroupNCCL.cpp).
constexpr double out_of_gather(double w) {
  return 2 * w;
}

/// Elements of parameters whose gradient tensor-parallel ranks have in parts, in the largest shard.
std::int64_t owned_partial(const Program& program, const Role& role) {
  std::int64_t elements = 0;
  for (const Chunk& chunk : role.chunks)
    for (const int index : chunk.blocks)
      for (const Parameter& parameter : program.blocks[static_cast<std::size_t>(index)].parameters)
        if (parameter.partial_tp)
          elements += owned(parameter.local_elements(),
                            program.mesh.size(parameter.expert ? Group::expert_shard : Group::shard));
  return elements;
}

/// Gradients of a bucket flattened, and their fp32 copy. A bucket ends with the tensor that takes it above the limit
/// (Aleph-Alpha/scaling@78489292b core/optimizer/allreduce.py).
Bytes wide_copies(const LayerContext& c, const Program& program, const Role& role) {
  std::int64_t bucket = 0;
  std::int64_t most = 0;
  for (const Chunk& chunk : role.chunks)
    for (const int index : chunk.blocks)
      for (const Parameter& parameter : program.blocks[static_cast<std::size_t>(index)].parameters) {
        if (parameter.frozen) continue;
        bucket += parameter.local_elements();
        most = std::max(most, bucket);
        if (bucket > c.semantics->wide_bucket) bucket = 0;
      }
  return Bytes(most * (bits_of(gradient_dtype(c)) + bits_of(statistics_dtype(c))) / 8);
}

} // namespace

Bytes executor_piece(const LayerContext& c, const Program& program, const Role& role) {
  if (c.semantics->family != SemanticsFamily::foretrain) return Bytes(0);
  std::int64_t most = 0;
  for (const Chunk& chunk : role.chunks)
    for (const int index : chunk.blocks)
      for (const Parameter& parameter : program.blocks[static_cast<std::size_t>(index)].parameters) {
        const int parts = c.layout.sharding.kind == ShardingKind::none
                              ? 1
                              : program.mesh.size(parameter.expert ? Group::expert_shard : Group::shard);
        most = std::max(most, owned(parameter.local_elements(), parts));
      }
  return Bytes(std::min(most, layers::kOptimizerBlock) * bits_of(statistics_dtype(c)) / 8);
}

void add_step(const LayerContext& c, const Program& program, Role& role) {
  const Semantics& s = *c.semantics;
  const Mesh& mesh = program.mesh;
  const Elements total = elements_of_role(program, role);
  const ShardingKind sharding = c.layout.sharding.kind;
  const auto add = [&role](Op op, Bytes peak = Bytes(0)) {
    role.step.push_back(std::move(op));
    role.step_peak.push_back(peak);
  };
  const bool once = sharding == ShardingKind::none || sharding == ShardingKind::optimizer;
  const double gradient_bytes = bits_of(gradient_dtype(c)) / 8.0;
  if (once && !(c.layout.overlap.dp_gradients && s.dp_gradient_overlap)) {
    for (const bool expert : {false, true}) {
      Bytes temporary;
      for (const Chunk& chunk : role.chunks) {
        std::vector<int> positions(chunk.blocks.size());
        std::iota(positions.begin(), positions.end(), 0);
        temporary = std::max(temporary, reduction_temporary(c, program, chunk, positions, expert));
      }
      if (s.wide_bucket > 0 && !expert) temporary = std::max(temporary, wide_copies(c, program, role));
      const std::int64_t elements = expert ? total.trained_expert() : total.trained_dense();
      std::vector<Op> sums = reductions(c, mesh, elements, expert);
      const bool around = sums_whole_gradients(c) && !sums.empty();
      const auto weights = static_cast<double>(elements);
      if (around) add(large(step_compute(Segment::none, TimePart::dp, before_whole_sum(gradient_bytes) * weights)));
      for (Op& op : sums) add(std::move(op), std::exchange(temporary, Bytes(0)));
      if (around) add(large(step_compute(Segment::none, TimePart::dp, after_whole_sum(gradient_bytes) * weights)));
    }
  }
  if (total.tp_partial > 0) {
    // Norm and router gradients are partial sums under sequence parallelism, those of norms of queries and keys in any
    // case (NVIDIA/Megatron-LM@d98e8a64d core/distributed/finalize_model_grads.py).
    // Our own executor holds only its shard of them by then, and joins them in one buffer.
    const bool ours = s.family == SemanticsFamily::foretrain;
    const std::int64_t elements = ours && !once ? owned_partial(program, role) : total.tp_partial;
    Op op = transfer(Collective::all_reduce, Group::tp, gradient_dtype(c), elements, Stream::gradients);
    op.part = TimePart::tp;
    const Bytes joined = ours ? op.bytes : Bytes(0);
    add(std::move(op), joined);
  }
  // The last stage has a copy of the input table where its head is tied to it, or multi-token prediction reads it
  // (Megatron-LM megatron/core/distributed/finalize_model_grads.py, _get_shared_word_embedding_weight).
  const bool copied = c.model->tied_embeddings || c.model->mtp_layers > 0;
  const bool end_stage = role.stage == 0 || role.stage == program.stages - 1;
  if (copied && program.stages > 1 && end_stage && !c.job->lora) {
    const std::int64_t table = c.vocab_padded / c.layout.tp * c.model->hidden;
    const bool shard_only = s.family == SemanticsFamily::foretrain && !once;
    Op op = transfer(Collective::all_reduce, Group::embedding, gradient_dtype(c),
                     shard_only ? owned(table, mesh.size(Group::shard)) : table, Stream::gradients);
    op.part = TimePart::pp;
    add(std::move(op));
  }

  const int dense_parts = sharding == ShardingKind::none ? 1 : mesh.size(Group::shard);
  const int expert_parts = sharding == ShardingKind::none ? 1 : mesh.size(Group::expert_shard);
  const auto mine =
      static_cast<double>(owned(total.trained_dense(), dense_parts) + owned(total.trained_expert(), expert_parts));
  const Bytes piece = executor_piece(c, program, role) + state_of_role(c, program, role).step_gradients;
  const auto whole = static_cast<double>(total.trained_dense() + total.trained_expert());
  const double norm_reads = sums_whole_gradients(c) ? whole_norm(gradient_bytes) * whole : gradient_bytes * mine;
  add(step_compute(Segment::gradient_norm, TimePart::optimizer, norm_reads), piece);
  if (mesh.world() > 1) {
    Op norm = transfer(Collective::all_reduce, Group::world, statistics_dtype(c), 1, Stream::gradients);
    norm.part = TimePart::optimizer;
    add(std::move(norm));
  }
  add(step_compute(Segment::gradient_norm, TimePart::optimizer, 2 * gradient_bytes * mine), // clip
      c.semantics->family == SemanticsFamily::foretrain ? Bytes(0) : piece);
  if (c.layout.offload.optimizer) {
    Op down = step_compute(Segment::none, TimePart::optimizer, 0);
    down.kind = OpKind::copy;
    down.stream = Stream::host;
    down.kernels.clear();
    down.bytes = Bytes(static_cast<std::int64_t>(gradient_bytes * mine));
    Op up = down;
    up.bytes = Bytes(static_cast<std::int64_t>(static_cast<double>(c.width) * mine));
    add(std::move(down));
    Op host =
        step_compute(Segment::optimizer, TimePart::optimizer, optimizer_traffic(*c.job, s, c.layout.sharding) * mine);
    host.stream = Stream::host;
    add(std::move(host));
    add(std::move(up));
  } else {
    add(step_compute(Segment::optimizer, TimePart::optimizer, optimizer_traffic(*c.job, s, c.layout.sharding) * mine),
        piece);
  }
  const double held = once ? whole : mine;
  add(step_compute(Segment::zero_gradients, TimePart::optimizer, gradient_bytes * held));
  // 16-bit weights are quantised once per step, both ways where products need it.
  if (c.low.active && c.low.cached_weights) {
    const double copies = c.low.weight * c.low.directions;
    const auto quantised = static_cast<double>(total.quantised_dense + total.quantised_expert);
    const bool frozen = total.frozen_dense > 0; // frozen weights were quantised before the first step
    if (!frozen && quantised > 0)
      add(step_compute(Segment::optimizer, TimePart::optimizer,
                       (static_cast<double>(c.width) * c.low.passes + copies) * quantised));
  }
  const bool gathers_at_end = (sharding == ShardingKind::optimizer || sharding == ShardingKind::gradients) &&
                              !(c.layout.overlap.dp_parameters && s.dp_parameter_overlap);
  if (gathers_at_end) {
    for (Op& op : trained_gathers(c, mesh, total, false)) add(std::move(op));
    for (Op& op : trained_gathers(c, mesh, total, true)) add(std::move(op));
    if (sums_whole_gradients(c) && mesh.size(Group::shard) > 1)
      add(large(step_compute(Segment::none, TimePart::dp, out_of_gather(static_cast<double>(c.width)) * whole)));
  }
}

} // namespace foretrain::data
