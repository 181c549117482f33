#include <cmath>

#include "core/base/check.h"
#include "executor/interpreter.h"

/// What concerns parameters rather than buffers: reduction and gather over data-parallel ranks, and the ops of the
/// step's end.
namespace foretrain {

using at::Tensor;

void Rank::run_between(const Chunk& chunk, const Op& op) {
  for (const ChunkOp& entry : chunk.between) {
    if (&entry.op != &op) continue;
    move_gradients(op, parameters_.of_blocks(chunk.index, entry.covers));
    return;
  }
  FORETRAIN_CHECK(false, "an op between blocks is one of the chunk's");
}

/// Data-parallel traffic of a range of parameters. With sharded state a rank owns the same elements of each parameter
/// whatever bucket it travels in, so that tied copies on other stages are cut alike.
void Rank::move_gradients(const Op& op, const ParameterTable::Range& range) {
  switch (op.collective) {
  case Collective::all_reduce: {
    if (parameters_.shards() == 1) { // gradients of neighbours lie together: no copy
      Tensor gradients = parameters_.gradients(range);
      return collective(op, gradients, gradients);
    }
    Tensor owned = parameters_.pack_owned(range, false);
    collective(op, owned, owned);
    return parameters_.unpack_owned(range, false, owned);
  }
  case Collective::reduce_scatter: {
    Tensor all = parameters_.pack_shards(range, false);
    Tensor owned = parameters_.pack_owned(range, false);
    collective(op, all, owned);
    return parameters_.unpack_owned(range, false, owned);
  }
  case Collective::all_gather: {
    Tensor owned = parameters_.pack_owned(range, true);
    Tensor all = parameters_.pack_shards(range, true);
    collective(op, owned, all);
    return parameters_.unpack_shards(range, true, all);
  }
  case Collective::all_to_all:
  case Collective::broadcast:
  case Collective::ring_exchange:
    break;
  }
  FORETRAIN_CHECK(false, "check_runnable admits only collectives with code");
}

/// Norms see only their own tokens under sequence parallelism: their gradients are summed over tp.
void Rank::sum_replicated(const Op& op) {
  std::vector<Tensor> parts;
  for (const ParameterEntry& entry : parameters_.entries())
    if (entry.spec->replicated_tp) parts.push_back(entry.gradient.view(-1));
  Tensor joined = at::cat(parts);
  collective(op, joined, joined);
  std::int64_t offset = 0;
  for (Tensor& part : parts) {
    part.copy_(joined.narrow(0, offset, part.numel()));
    offset += part.numel();
  }
}

/// First time in a step: this rank's sum of squares, each element of the model counted on one rank. Second time: clips.
void Rank::gradient_norm() {
  if (!norm_taken_) {
    if (options_.before_clip) options_.before_clip(step_, parameters_);
    squares_ = at::zeros({1}, type_);
    for (const ParameterEntry& entry : parameters_.entries())
      if (entry.counted) squares_.add_(entry.owned(entry.gradient).square().sum());
    norm_taken_ = true;
    return;
  }
  record_.gradient_norm = std::sqrt(squares_.to(at::kDouble).item<double>());
  const double limit = options_.optimizer.clip_norm;
  if (limit > 0 && record_.gradient_norm > limit) parameters_.gradients().mul_(limit / record_.gradient_norm);
}

void Rank::run_step_op(const Op& op) {
  if (op.kind == OpKind::collective) {
    switch (op.group) {
    case Group::data:
    case Group::shard:
    case Group::replicate:
      return move_gradients(op, parameters_.all());
    case Group::tp:
      return sum_replicated(op);
    case Group::embedding: {
      Tensor gradient = parameters_.table().gradient;
      return collective(op, gradient, gradient);
    }
    case Group::world:
      return collective(op, squares_, squares_);
    case Group::cp:
    case Group::cp_inner:
    case Group::cp_outer:
    case Group::pp:
    case Group::ep:
    case Group::etp:
    case Group::ep_etp:
    case Group::expert_data:
    case Group::expert_shard:
      break;
    }
    FORETRAIN_CHECK(false, "check_runnable admits no other groups at the step's end");
  }
  if (op.segment == Segment::gradient_norm) return gradient_norm();
  if (op.segment == Segment::optimizer) return optimizer_.step(parameters_);
  FORETRAIN_CHECK(op.segment == Segment::zero_gradients, "check_runnable admits no other ops at the step's end");
  parameters_.gradients().zero_();
}

} // namespace foretrain
