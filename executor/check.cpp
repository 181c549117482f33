#include "executor/check.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/program/blocks.h"
#include "core/program/layers/ends.h"
#include "core/program/lower.h"
#include "core/program/schedules/schedule.h"
#include "core/program/stages.h"
#include "core/spec/io.h"
#include "executor/record.h"

namespace foretrain {
namespace {

/// Collects reasons: `unless(ok, reason)`.
class Reasons {
public:
  void unless(bool holds, std::string reason) {
    if (!holds) list_.push_back(std::move(reason));
  }
  [[nodiscard]] std::vector<std::string> list() && { return std::move(list_); }

private:
  std::vector<std::string> list_;
};

std::string number(std::int64_t value) {
  return std::to_string(value);
}

void model(Reasons& r, const ModelSpec& m) {
  if (m.moe) {
    r.unless(!m.moe->shared_gate, "a gate of the shared expert is not executed");
    r.unless(!m.moe->router_bias && !m.moe->correction_bias, "biases of the router are not executed");
    r.unless(!m.moe->expert_bias, "biases inside experts are not executed");
    r.unless(m.moe->groups == 1, "group-limited routing is not executed");
  }
  r.unless(m.mtp_layers <= 1, "more than one multi-token-prediction layer is not executed");
  r.unless(m.mtp_layers == 0 || m.learned_positions == 0,
           "multi-token prediction with learned positions is not executed");
  r.unless(m.qk_norm == QkNorm::none || !m.latent,
           "norms of queries and keys beside those that latent attention has are not executed");
  r.unless(!m.attention_sinks, "attention sinks are not executed");
  r.unless(!m.output_gate, "gated attention output is not executed");
  r.unless(!m.parallel_block, "attention and feed-forward beside each other are not executed");
  r.unless(m.norm_placement == NormPlacement::before, "norms after the halves of a layer are not executed");
  r.unless(m.attention_softcap == 0 && m.logit_softcap == 0, "capped scores or logits are not executed");
  r.unless(!m.scaled_embedding, "a scaled embedding is not executed");
  r.unless(!m.embedding_norm, "a norm after the embedding is not executed");
  r.unless(m.final_norm, "a model without a final norm is not executed");
  r.unless(m.ffn > 0 || m.moe, "layers without a feed-forward are not executed");
  const int turned = m.latent ? m.latent->qk_rope_head_dim : m.head_dim;
  r.unless(turned % 2 == 0 || m.learned_positions > 0,
           "rotary positions need an even head width, not " + number(turned));
  r.unless(!m.latent || (turned > 0 && m.learned_positions == 0 && !m.qkv_bias && !m.out_bias),
           "latent attention without rotary positions, or with biases, is not executed");
  if (const auto rejection = unsupported(m)) r.unless(false, rejection->reason);
}

void job(Reasons& r, const Plan& plan, const Semantics& semantics) {
  const JobSpec& j = plan.job;
  const bool half = j.precision == Precision::bf16;
  r.unless(j.precision == Precision::fp64 || j.precision == Precision::fp32 || half,
           "precision " + std::string(id_of(j.precision)) + " is not executed; bf16, fp32 and fp64 are");
  r.unless(!half || j.gradient == DType::fp32, "bf16 is executed with fp32 gradients only");
  r.unless(j.optimizer.moments == DType::fp32, "moments are executed in fp32 only");
  const OptimizerKind optimizer = j.optimizer.kind;
  r.unless(optimizer == OptimizerKind::adamw || optimizer == OptimizerKind::sgd || optimizer == OptimizerKind::lion,
           "optimizer " + std::string(id_of(optimizer)) + " is not executed; adamw, lion and sgd are");
  r.unless(!j.gradient_accumulation_fusion, "gradient_accumulation_fusion is no choice here: leave it out");
  r.unless(j.dropout == 0, "dropout is not executed");
  r.unless(j.attention == AttentionKernel::flash,
           "attention that keeps its probabilities (unfused, eager) is not executed");
  r.unless(j.cross_entropy.value_or(semantics.cross_entropy) == CrossEntropy::fused,
           "the loss is executed in one form: fused (its gradient written over the logits)");
  r.unless(j.norm == NormKernel::fused, "norms in operators of their own (unfused) are not executed");
  r.unless(j.packed.empty(), "packed sequences are not executed");
  r.unless(plan.model.learned_positions == 0 || plan.model.learned_positions >= j.sequence_length,
           "sequence_length " + number(j.sequence_length) + " exceeds the model's " +
               number(plan.model.learned_positions) + " learned positions");
  r.unless(semantics.family == SemanticsFamily::foretrain,
           "semantics '" + semantics.name + "' describe another program; the executor follows 'foretrain'");
}

void layout(Reasons& r, const Plan& plan) {
  const Layout& l = plan.layout;
  const ModelSpec& m = plan.model;
  const ContextKind context = l.context_parallel.kind;
  r.unless(l.cp == 1 || context != ContextKind::ulysses_ring, "Ulysses inside a ring is not executed");
  r.unless(l.expert_dispatch.kind != DispatchKind::deduplicated || l.ep * l.etp == 1,
           "de-duplicated dispatch is not executed");
  r.unless(m.qk_norm != QkNorm::full_width || m.norm == NormKind::rms || l.tp == 1,
           "LayerNorm of queries and keys over all heads is not executed where tp splits them");
  if (m.moe) {
    r.unless(l.tp == 1 || l.sequence_parallel, "experts with tp need sequence_parallel");
    r.unless(!plan.job.routing.capacity_factor, "experts with a capacity are not executed");
  }
  r.unless(l.sharding.kind != ShardingKind::parameters || l.sharding.reshard_after_forward.value_or(true),
           "sharded parameters that stay gathered after the forward (reshard_after_forward false) are not executed");
  r.unless(!l.overlap.tp && !l.overlap.moe, "tensor-parallel or expert transfers inside kernels are not executed");
  const auto divides = [&r](int parts, std::int64_t whole, const std::string& axis, const std::string& what) {
    r.unless(whole % parts == 0, axis + " " + number(parts) + " does not divide " + what + " " + number(whole));
  };
  divides(l.tp, m.heads, "tp", "heads");
  if (!m.latent) divides(l.tp, m.kv_heads, "tp", "kv_heads");
  divides(l.tp, m.ffn, "tp", "ffn");
  if (m.moe) {
    divides(l.ep, m.moe->experts, "ep", "experts");
    divides(l.etp, m.moe->ffn, "etp", "ffn of an expert");
    divides(l.tp, m.moe->shared_ffn, "tp", "ffn of the shared experts");
    divides(l.ep * l.etp, std::int64_t{l.tp} * l.cp * l.dp(), "ep × etp", "tp × cp × dp");
  } else {
    r.unless(l.ep * l.etp == 1, "expert parallelism of a model without experts");
  }
  if (l.cp > 1 && context == ContextKind::ulysses) {
    divides(l.cp, plan.job.sequence_length, "cp", "sequence_length");
    divides(l.tp * l.cp, m.heads, "tp × cp", "heads");
    if (!m.latent) divides(l.tp * l.cp, m.kv_heads, "tp × cp", "kv_heads");
  } else if (l.cp > 1) {
    divides(2 * l.cp, plan.job.sequence_length, "2 × cp", "sequence_length");
  }
  if (l.sequence_parallel)
    divides(l.tp, std::int64_t{plan.job.sequence_length} * l.micro_batch / l.cp, "tp", "tokens of a micro-batch");
  r.unless(l.world() <= kMostDevices, "more than " + number(kMostDevices) + " ranks");
}

void schedule(Reasons& r, const Plan& plan) {
  const Layout& l = plan.layout;
  const std::int64_t per_round = std::int64_t{l.micro_batch} * l.dp();
  const bool whole = plan.job.global_batch > 0 && plan.job.global_batch % per_round == 0;
  r.unless(whole, "global_batch " + number(plan.job.global_batch) +
                      " is not a multiple of micro_batch × dp = " + number(per_round));
  r.unless(plan.job.global_batch / per_round <= 1'000'000, "more than a million micro-batches");
  const Schedule* found = schedules().find(l.schedule.kind);
  r.unless(found, "schedule '" + l.schedule.kind + "' is not known");
  if (!found || !whole || plan.job.global_batch / per_round > 1'000'000) return;
  const ScheduleShape shape = schedule_shape(plan.job, l);
  if (const auto rejection = found->legal(shape))
    r.unless(false, rejection->reason);
  else if (l.pp > 1 && !l.overlap.p2p)
    if (const auto blocked = found->legal_blocking(shape)) r.unless(false, blocked->reason);
  const auto chunks = static_cast<std::size_t>(l.pp) * static_cast<std::size_t>(l.schedule.chunks);
  r.unless(l.layers_per_stage.empty() || l.layers_per_stage.size() == chunks,
           "layers_per_stage has " + number(static_cast<std::int64_t>(l.layers_per_stage.size())) +
               " entries, not pp × chunks = " + number(static_cast<std::int64_t>(chunks)));
  if (!l.layers_per_stage.empty() && l.layers_per_stage.size() != chunks) return;
  const std::vector<int> layers = layers_per_chunk(plan.model, l);
  r.unless(std::all_of(layers.begin(), layers.end(), [](int count) { return count >= 1; }), "a stage without layers");
  r.unless(std::accumulate(layers.begin(), layers.end(), 0) == plan.model.layers,
           "layers_per_stage does not add up to " + number(plan.model.layers) + " layers");
}

bool executed(Segment segment) {
  switch (segment) {
  case Segment::embedding:
  case Segment::norm:
  case Segment::qkv:
  case Segment::rope:
  case Segment::attention:
  case Segment::attention_out:
  case Segment::mla_down:
  case Segment::mla_up:
  case Segment::ffn_up:
  case Segment::activation:
  case Segment::ffn_down:
  case Segment::residual:
  case Segment::head:
  case Segment::loss:
  case Segment::router:
  case Segment::permute:
  case Segment::expert_up:
  case Segment::expert_activation:
  case Segment::expert_down:
  case Segment::unpermute:
  case Segment::shared_up:
  case Segment::shared_activation:
  case Segment::shared_down:
  case Segment::mtp_projection:
  case Segment::optimizer:
  case Segment::zero_gradients:
  case Segment::gradient_norm:
    return true;
  case Segment::none:
  case Segment::linear_mixer:
    return false;
  }
  return false;
}

bool executed(Collective collective) {
  switch (collective) {
  case Collective::all_reduce:
  case Collective::all_gather:
  case Collective::reduce_scatter:
  case Collective::all_to_all:
  case Collective::ring_exchange:
    return true;
  case Collective::broadcast:
    return false;
  }
  return false;
}

bool executed(const Op& op) {
  switch (op.kind) {
  case OpKind::compute:
    return executed(op.segment);
  case OpKind::collective:
    return executed(op.collective);
  case OpKind::host_sync:
    return true;
  case OpKind::copy:
    return false;
  }
  return false;
}

} // namespace

std::vector<std::string> check_runnable(const Plan& plan, const Semantics& semantics) {
  Reasons reasons;
  model(reasons, plan.model);
  job(reasons, plan, semantics);
  layout(reasons, plan);
  schedule(reasons, plan);
  return std::move(reasons).list();
}

std::vector<std::string> check_runnable(const Program& program) {
  std::set<std::string> reasons;
  const auto look = [&reasons](const std::vector<Op>& ops, bool at_end = false) {
    for (const Op& op : ops)
      if (!(executed(op) || (at_end && op.kind == OpKind::copy)))
        reasons.insert("the interpreter has no code for op '" + name_of(op) + "'");
  };
  for (const Block& block : program.blocks) {
    for (const std::vector<Op>* ops : {&block.forward, &block.backward, &block.input, &block.weight}) look(*ops);
  }
  for (const Role& role : program.roles) {
    for (const Chunk& chunk : role.chunks)
      for (const ChunkOp& op : chunk.between) look({op.op});
    look(role.step, true); // the optimizer's copies from and to the host
  }
  return {reasons.begin(), reasons.end()};
}

} // namespace foretrain
