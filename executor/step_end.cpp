#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "executor/interpreter.h"

/// What concerns parameters rather than buffers: reduction and gather over data-parallel ranks, and the ops of the
/// step's end.
namespace foretrain {

using at::Tensor;

namespace {

/// Whether a reduction or gather moves the experts' parameters. Sharded experts are averaged over the same replicas as
/// the other parameters, after them: `before` are the ops at the same place, in order.
bool moves_experts(const Op& op, const std::vector<const Op*>& before) {
  if (op.group == Group::expert_data || op.group == Group::expert_shard) return true;
  if (op.group != Group::replicate) return false;
  return std::any_of(before.begin(), before.end(), [](const Op* earlier) {
    return earlier->group == Group::replicate || earlier->group == Group::expert_shard;
  });
}

} // namespace

void Rank::run_between(const Instruction& slot, const Chunk& chunk, std::size_t index) {
  const ChunkOp& entry = chunk.between[index];
  const int position = entry.covers.empty() ? entry.position : entry.covers.front();
  if (entry.op.kind == OpKind::compute) {
    FORETRAIN_CHECK(entry.op.segment == Segment::zero_gradients, "check_runnable admits no other ops between blocks");
    return parameters_.open_gradients(slot.chunk, position, slot.pass);
  }
  std::vector<const Op*> before;
  for (std::size_t i = 0; i < index; ++i) {
    const ChunkOp& earlier = chunk.between[i];
    if (earlier.op.kind == OpKind::collective && earlier.pass == entry.pass && earlier.position == entry.position &&
        earlier.before == entry.before)
      before.push_back(&earlier.op);
  }
  const bool experts = moves_experts(entry.op, before);
  if (entry.op.collective == Collective::all_gather) {
    if (plan_.layout.sharding.kind == ShardingKind::parameters) parameters_.open_weights(slot.chunk, position);
    return move_parameters(entry.op, parameters_.of_blocks(slot.chunk, entry.covers, experts));
  }
  const bool per_pass =
      plan_.layout.sharding.kind == ShardingKind::gradients || plan_.layout.sharding.kind == ShardingKind::parameters;
  move_parameters(entry.op, per_pass ? parameters_.written_by(slot.chunk, position, slot.pass, experts)
                                     : parameters_.of_blocks(slot.chunk, entry.covers, experts));
}

/// What a block had of its own for one pass goes after it.
void Rank::free_between(const Instruction& slot, const Chunk& chunk, int position) {
  for (const ChunkOp& entry : chunk.between) {
    if (entry.freed_after != position || !runs_in(entry, slot)) continue;
    if (entry.op.kind == OpKind::compute)
      parameters_.close_gradients(slot.chunk, position, slot.pass);
    else if (entry.op.collective == Collective::all_gather)
      parameters_.close_weights(slot.chunk, position);
  }
}

/// Data-parallel traffic, in place.
void Rank::move_parameters(const Op& op, const std::vector<ParameterEntry*>& entries) {
  const bool weight = op.collective == Collective::all_gather;
  const auto width = static_cast<std::int64_t>(at::elementSize(weight ? type_ : parameters_.gradient_type()));
  switch (op.collective) {
  case Collective::all_reduce: {
    std::vector<Tensor> tensors;
    if (op.group == Group::replicate && plan_.layout.sharding.kind != ShardingKind::none)
      for (const ParameterEntry* entry : entries) tensors.push_back(parameters_.own_shard(*entry, false));
    else
      tensors = parameters_.gradient_runs(entries);
    for (Tensor& tensor : tensors) {
      communicator_.all_reduce(op.group, tensor, Communicator::Reduction::sum);
      moved_ += bytes_of(tensor);
    }
    return;
  }
  case Collective::reduce_scatter:
  case Collective::all_gather:
    for (const ParameterEntry* entry : entries) {
      Tensor own = parameters_.own_shard(*entry, weight);
      Tensor whole = parameters_.by_shards(*entry, weight);
      if (weight)
        communicator_.all_gather(op.group, own, whole);
      else
        communicator_.reduce_scatter(op.group, whole, own);
      moved_ += entry->elements * width;
    }
    return;
  case Collective::all_to_all:
  case Collective::broadcast:
  case Collective::ring_exchange:
    break;
  }
  FORETRAIN_CHECK(false, "check_runnable admits only collectives with code");
}

/// Parameters that every tensor-parallel rank holds see only their own tokens under sequence parallelism, and norms of
/// each head only their own heads.
void Rank::sum_replicated(const Op& op) {
  const bool sharded =
      plan_.layout.sharding.kind == ShardingKind::gradients || plan_.layout.sharding.kind == ShardingKind::parameters;
  std::vector<Tensor> parts;
  for (const ParameterEntry& entry : parameters_.entries())
    if (entry.spec->partial_tp) parts.push_back(sharded ? entry.owned_gradient : entry.gradient.view(-1));
  Tensor joined = at::cat(parts);
  collective(op, joined, joined);
  std::int64_t offset = 0;
  for (Tensor& part : parts) {
    part.copy_(joined.narrow(0, offset, part.numel()));
    offset += part.numel();
  }
}

namespace {

/// Sum of squares of the elements that a rank counts, a chunk at a time, each sum read by the host.
double squares_on_host(const ParameterTable& parameters) {
  double sum = 0;
  for (const ParameterEntry& entry : parameters.entries())
    for (std::int64_t done = 0; entry.counted && done < entry.owned_count; done += kOptimizerChunk)
      sum += entry.owned_gradient.narrow(0, done, std::min(kOptimizerChunk, entry.owned_count - done))
                 .square()
                 .sum()
                 .item<double>();
  return sum;
}

/// The same where nothing is read.
Tensor squares_on_device(const ParameterTable& parameters, const Device& device) {
  Tensor sum = at::zeros({1}, at::TensorOptions(at::kDouble).device(device.place()));
  for (const ParameterEntry& entry : parameters.entries())
    for (std::int64_t done = 0; entry.counted && done < entry.owned_count; done += device.chunk())
      sum.add_(entry.owned_gradient.narrow(0, done, std::min(device.chunk(), entry.owned_count - done))
                   .square()
                   .sum(at::kDouble));
  return sum;
}

} // namespace

/// First time in a step: this rank's sum of squares, each element of the model counted on one rank. Second time: clips.
void Rank::gradient_norm() {
  const double limit = options_.optimizer.clip_norm;
  if (!norm_taken_) {
    if (options_.before_clip) options_.before_clip(step_, parameters_);
    squares_ = at::zeros({1}, options_of(type_ == at::kDouble ? at::kDouble : at::kFloat));
    if (device_.queues())
      squares_.copy_(squares_on_device(parameters_, device_));
    else
      squares_.fill_(squares_on_host(parameters_));
    norm_taken_ = true;
    return;
  }
  if (device_.queues()) { // multiplied by 1 where the norm is within the limit: the host does not know
    norm_ = squares_.to(at::kDouble).sqrt();
    if (limit > 0) parameters_.scale_gradients(norm_.reciprocal().mul_(limit).clamp_max_(1));
    return;
  }
  record_.gradient_norm = std::sqrt(squares_.to(at::kDouble).item<double>());
  if (limit > 0 && record_.gradient_norm > limit) parameters_.scale_gradients(limit / record_.gradient_norm);
}

void Rank::run_step_op(const Op& op) {
  if (op.kind == OpKind::collective) {
    switch (op.group) {
    case Group::data:
    case Group::shard:
    case Group::replicate:
    case Group::expert_data:
    case Group::expert_shard: {
      std::vector<const Op*> before;
      for (const Op& earlier : role_.step) {
        if (&earlier == &op) break;
        if (earlier.kind == OpKind::collective) before.push_back(&earlier);
      }
      return move_parameters(op, parameters_.all(moves_experts(op, before)));
    }
    case Group::tp:
      return sum_replicated(op);
    case Group::embedding: {
      ParameterEntry& table = parameters_.table();
      Tensor gradient = table.gradient.defined() ? table.gradient : table.owned_gradient;
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
      break;
    }
    FORETRAIN_CHECK(false, "check_runnable admits no other groups at the step's end");
  }
  if (op.kind == OpKind::copy) {
    moved_ = optimizer_.copy(parameters_);
    return;
  }
  if (op.segment == Segment::gradient_norm) return gradient_norm();
  if (op.segment == Segment::optimizer) return optimizer_.step(parameters_);
  FORETRAIN_CHECK(op.segment == Segment::zero_gradients, "check_runnable admits no other ops at the step's end");
  parameters_.zero_gradients();
}

} // namespace foretrain
