#include "executor/table.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/program/schedules/schedule.h"
#include "core/spec/names.h"
#include "executor/check.h"

namespace foretrain {
namespace {

using Change = std::function<void(Plan&)>;
using Choices = std::vector<std::pair<std::string, Change>>;

/// Runs itself, and so does each change to it that the executor has code for.
Plan base_plan() {
  Plan plan;
  ModelSpec& m = plan.model;
  m.name = "base";
  m.layers = 8;
  m.hidden = 16;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 24;
  m.vocab = 64;
  TierSpec tier;
  tier.fanout = 8;
  plan.cluster.tiers = {tier};
  plan.job.sequence_length = 16;
  plan.job.global_batch = 16;
  plan.job.precision = Precision::fp32;
  plan.job.semantics = "foretrain";
  return plan;
}

void add_experts(Plan& plan) {
  plan.model.moe = MoeSpec{};
  plan.model.moe->experts = 4;
  plan.model.moe->top_k = 2;
  plan.model.moe->ffn = 8;
}

Choices models() {
  return {
      {"dense", [](Plan&) {}},
      {"mixture of experts", add_experts},
      {"shared experts", [](Plan& p) { add_experts(p), p.model.moe->shared_ffn = 8; }},
      {"gated shared experts", [](Plan& p) { add_experts(p), p.model.moe->shared_gate = true; }},
      {"router biases", [](Plan& p) { add_experts(p), p.model.moe->router_bias = true; }},
      {"expert biases", [](Plan& p) { add_experts(p), p.model.moe->expert_bias = true; }},
      {"group-limited routing", [](Plan& p) { add_experts(p), p.model.moe->groups = 2; }},
      {"grouped queries", [](Plan& p) { p.model.kv_heads = 1; }},
      {"latent attention", [](Plan& p) { p.model.latent = LatentAttention{8, 8, 4, 4, 4, 0, 0}; }},
      {"sliding window",
       [](Plan& p) {
         p.model.window = SlidingWindow{4, 2, {}};
       }},
      {"LayerNorm", [](Plan& p) { p.model.norm = NormKind::layer; }},
      {"plain feed-forward", [](Plan& p) { p.model.gated = false; }},
      {"learned positions", [](Plan& p) { p.model.learned_positions = 16; }},
      {"biases", [](Plan& p) { p.model.qkv_bias = p.model.out_bias = p.model.mlp_bias = true; }},
      {"tied tables", [](Plan& p) { p.model.tied_embeddings = true; }},
      {"multi-token prediction", [](Plan& p) { p.model.mtp_layers = 1; }},
      {"multi-token prediction over several tokens", [](Plan& p) { p.model.mtp_layers = 2; }},
      {"norms of queries and keys", [](Plan& p) { p.model.qk_norm = QkNorm::per_head; }},
      {"norms of queries and keys over all heads", [](Plan& p) { p.model.qk_norm = QkNorm::full_width; }},
      {"attention sinks", [](Plan& p) { p.model.attention_sinks = true; }},
      {"gated attention output", [](Plan& p) { p.model.output_gate = true; }},
      {"norm after the embedding", [](Plan& p) { p.model.embedding_norm = true; }},
      {"parallel blocks", [](Plan& p) { p.model.parallel_block = true; }},
      {"norms after the halves of a layer", [](Plan& p) { p.model.norm_placement = NormPlacement::after; }},
      {"capped scores and logits", [](Plan& p) { p.model.attention_softcap = p.model.logit_softcap = 30; }},
      {"scaled embeddings", [](Plan& p) { p.model.scaled_embedding = true; }},
  };
}

Choices parallel_axes() {
  return {
      {"tp", [](Plan& p) { p.layout.tp = 2; }},
      {"tp with sequence parallel", [](Plan& p) { p.layout.tp = 2, p.layout.sequence_parallel = true; }},
      {"pp", [](Plan& p) { p.layout.pp = 2; }},
      {"cp", [](Plan& p) { p.layout.cp = 2; }},
      {"dp_shard", [](Plan& p) { p.layout.dp_shard = 2; }},
      {"dp_replicate", [](Plan& p) { p.layout.dp_replicate = 2; }},
      {"ep", [](Plan& p) { add_experts(p), p.layout.dp_shard = p.layout.ep = 2; }},
      {"etp", [](Plan& p) { add_experts(p), p.layout.dp_shard = p.layout.etp = 2; }},
      {"transfers inside kernels (overlap.tp)",
       [](Plan& p) { p.layout.tp = 2, p.layout.sequence_parallel = p.layout.overlap.tp = true; }},
      {"expert exchange beside compute (overlap.moe)",
       [](Plan& p) { add_experts(p), p.layout.dp_shard = p.layout.ep = 2, p.layout.overlap.moe = true; }},
  };
}

Choices schedule_kinds() {
  Choices list;
  for (const std::string_view kind : kScheduleKinds)
    list.push_back({std::string(kind), [kind](Plan& p) {
                      p.layout.pp = 2;
                      p.layout.schedule.kind = kind;
                      p.layout.schedule.chunks = schedules().find(kind)->takes_chunks() ? 2 : 1;
                    }});
  return list;
}

/// One choice per enumerator, named by its id.
template <class Kind, class Set> Choices enumerated(std::initializer_list<Kind> kinds, Set&& set) {
  Choices list;
  for (const Kind kind : kinds) list.push_back({std::string(id_of(kind)), [=](Plan& p) { set(p, kind); }});
  return list;
}

Choices shardings() {
  Choices list =
      enumerated({ShardingKind::none, ShardingKind::optimizer, ShardingKind::gradients, ShardingKind::parameters},
                 [](Plan& p, ShardingKind kind) { p.layout.dp_shard = 2, p.layout.sharding.kind = kind; });
  list.push_back({"parameters, kept after the forward", [](Plan& p) {
                    p.layout.dp_shard = 2;
                    p.layout.sharding = {ShardingKind::parameters, false};
                  }});
  return list;
}

Choices recomputations() {
  Choices list = enumerated({RecomputeKind::none, RecomputeKind::full},
                            [](Plan& p, RecomputeKind kind) { p.layout.recompute.kind = kind; });
  for (const auto& choice :
       enumerated({RecomputeModule::core_attention, RecomputeModule::layernorm, RecomputeModule::activation,
                   RecomputeModule::mla_up, RecomputeModule::mlp, RecomputeModule::moe},
                  [](Plan&p, RecomputeModule module) {
                    p.layout.recompute.kind = RecomputeKind::selective;
                    p.layout.recompute.modules = {module};
                  }))
    list.push_back(choice);
  return list;
}

std::vector<std::pair<std::string, Choices>> axes() {
  return {
      {"models", models()},
      {"parallel axes", parallel_axes()},
      {"schedules", schedule_kinds()},
      {"sharded state", shardings()},
      {"context parallel",
       enumerated({ContextKind::all_gather, ContextKind::ring, ContextKind::ulysses, ContextKind::ulysses_ring},
                  [](Plan& p, ContextKind kind) {
                    p.model.kv_heads = 4;
                    p.layout.cp = 4;
                    p.layout.context_parallel = {kind, kind == ContextKind::ulysses_ring ? 2 : 1};
                  })},
      {"expert dispatch", enumerated({DispatchKind::all_gather, DispatchKind::all_to_all, DispatchKind::deduplicated},
                                     [](Plan& p, DispatchKind kind) {
                                       add_experts(p);
                                       p.layout.dp_shard = p.layout.ep = 2;
                                       p.layout.expert_dispatch.kind = kind;
                                     })},
      {"recomputation", recomputations()},
      {"precisions",
       enumerated({Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8_delayed,
                   Precision::fp8_current, Precision::fp8_blockwise, Precision::mxfp8, Precision::nvfp4},
                  [](Plan& p, Precision kind) { p.job.precision = kind; })},
      {"optimizers", enumerated({OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::sgd,
                                 OptimizerKind::adafactor, OptimizerKind::muon, OptimizerKind::adamw_8bit},
                                [](Plan& p, OptimizerKind kind) { p.job.optimizer.kind = kind; })},
      {"job",
       {{"optimizer on the host", [](Plan& p) { p.layout.offload.optimizer = true; }},
        {"dropout", [](Plan& p) { p.job.dropout = 0.1; }},
        {"packed sequences",
         [](Plan& p) {
           p.job.packed = {{8, 1.0}};
         }},
        {"expert capacity", [](Plan& p) { add_experts(p), p.job.routing.capacity_factor = 1.0; }},
        {"unfused attention", [](Plan& p) { p.job.attention = AttentionKernel::unfused; }},
        {"unfused norms", [](Plan& p) { p.job.norm = NormKernel::unfused; }},
        {"a choice of gradient accumulation fusion", [](Plan& p) { p.job.gradient_accumulation_fusion = true; }}}},
  };
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& entry : list) text += (text.empty() ? "" : ", ") + entry;
  return text;
}

} // namespace

std::vector<RunnableAxis> runnable_axes(const Semantics& semantics) {
  std::vector<RunnableAxis> list;
  for (const auto& [name, choices] : axes()) {
    RunnableAxis axis{name, {}, {}};
    for (const auto& [choice, change] : choices) {
      Plan plan = base_plan();
      change(plan);
      (check_runnable(plan, semantics).empty() ? axis.runs : axis.refused).push_back(choice);
    }
    list.push_back(std::move(axis));
  }
  return list;
}

std::string runnable_table(const Semantics& semantics) {
  std::string text = "| | runs | is refused |\n| --- | --- | --- |\n";
  for (const RunnableAxis& axis : runnable_axes(semantics))
    text += "| " + axis.name + " | " + joined(axis.runs) + " | " + joined(axis.refused) + " |\n";
  return text;
}

} // namespace foretrain
