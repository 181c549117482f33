#include <algorithm>

#include <fmt/format.h>

#include "core/program/blocks.h"
#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

std::optional<Rejection> modelled(const RuleInput& in) {
  return unsupported(in.model);
}

/// What the model needs of its layers that the framework's are not.
std::optional<Rejection> block_features(const RuleInput& in) {
  const ModelSpec& m = in.model;
  const auto& has = in.semantics.block_features;
  const auto lacking = [&has](BlockFeature feature) { return std::find(has.begin(), has.end(), feature) == has.end(); };
  std::string what;
  if (m.parallel_block && lacking(BlockFeature::parallel))
    what = "attention beside the feed-forward";
  else if (m.norm_placement == NormPlacement::after && lacking(BlockFeature::norms_after))
    what = "norms after each half";
  else if (m.norm_placement == NormPlacement::around && lacking(BlockFeature::norms_around))
    what = "norms before and after each half";
  else if ((m.attention_softcap > 0 || m.logit_softcap > 0) && lacking(BlockFeature::softcap))
    what = "capped scores or logits";
  else if (m.qk_norm == QkNorm::per_head && lacking(BlockFeature::qk_norms))
    what = "norms of queries and keys";
  else if (m.qk_norm == QkNorm::full_width && lacking(BlockFeature::wide_qk_norms))
    what = "norms of queries and keys over all heads";
  if (what.empty()) return std::nullopt;
  return lacks(fmt::format("{} has {}, {} has no such layers", m.name, what, in.semantics.name),
               {"semantics megatron-core", "semantics deepspeed"});
}

/// Where tensor parallelism splits the heads over which a norm runs.
std::optional<Rejection> split_norms(const RuleInput& in) {
  const auto& has = in.semantics.block_features;
  if (in.model.qk_norm != QkNorm::full_width || in.model.latent || in.layout.tp == 1) return std::nullopt;
  if (std::find(has.begin(), has.end(), BlockFeature::split_wide_qk_norms) != has.end()) return std::nullopt;
  return reject(fmt::format("{} has norms of queries and keys over all heads, which {} does not split: tp {} instead "
                            "of 1",
                            in.model.name, in.semantics.name, in.layout.tp),
                in.layout.tp, 1, {"tp 1"});
}

std::optional<Rejection> positions(const RuleInput& in) {
  const int rows = in.model.learned_positions;
  if (rows == 0 || in.job.sequence_length <= rows) return std::nullopt;
  return reject("sequence length " + std::to_string(in.job.sequence_length) +
                    " needs a learned position for each token, " + in.model.name + " has " + std::to_string(rows),
                in.job.sequence_length, rows, {"sequence_length " + std::to_string(rows)});
}

std::optional<Rejection> precision(const RuleInput& in) {
  const std::string id(id_of(in.job.precision));
  const auto& list = in.semantics.precisions;
  if (!list.empty() && std::find(list.begin(), list.end(), in.job.precision) == list.end()) {
    std::vector<std::string> nearest;
    for (const Precision other : list) nearest.push_back("precision " + std::string(id_of(other)));
    return lacks(in.semantics.name + " does not train in " + id, std::move(nearest));
  }
  return std::nullopt;
}

std::optional<Rejection> gradient_fusion(const RuleInput& in) {
  if (!in.job.gradient_accumulation_fusion) return std::nullopt;
  if (in.semantics.family != SemanticsFamily::megatron)
    return lacks(fmt::format("{} has no choice of how weight gradients are summed", in.semantics.name),
                 {"semantics megatron-core", "gradient_accumulation_fusion none"});
  if (*in.job.gradient_accumulation_fusion && !in.semantics.dummy_weight_gradients)
    return lacks(fmt::format("products of {} do not add to the gradient buffer", in.semantics.name),
                 {"gradient_accumulation_fusion false", "semantics megatron-core"});
  return std::nullopt;
}

std::optional<Rejection> adapters(const RuleInput& in) {
  if (!in.job.lora) return std::nullopt;
  const LoraChoice& lora = *in.job.lora;
  const auto carries = [&lora](AdapterTarget target) {
    return std::find(lora.targets.begin(), lora.targets.end(), target) != lora.targets.end();
  };
  if (in.model.mtp_layers > 0)
    return reject(
        fmt::format("adapters beside multi-token-prediction layers are not modelled: the model has {}, 0 are possible",
                    in.model.mtp_layers),
        in.model.mtp_layers, 0, {"lora none"});
  if (in.model.latent && carries(AdapterTarget::qkv))
    return lacks("latent attention has no joint query, key and value projection to carry an adapter",
                 {"lora.targets [attention-out]"});
  if (in.model.moe && (carries(AdapterTarget::ffn_up) || carries(AdapterTarget::ffn_down)))
    return lacks("adapters of experts are not modelled",
                 {in.model.latent ? "lora.targets [attention-out]" : "lora.targets [qkv attention-out]"});
  if (lora.rank % in.layout.tp != 0)
    return reject(fmt::format("an adapter of rank {} cannot be split over tp {}", lora.rank, in.layout.tp),
                  in.layout.tp, lora.rank,
                  nearest_values("tp", in.layout.tp, lora.rank, [&](std::int64_t t) { return lora.rank % t == 0; }));
  return std::nullopt;
}

std::optional<Rejection> adapter_schedule(const RuleInput& in) {
  if (!in.job.lora || in.layout.schedule.kind.rfind("zb", 0) != 0) return std::nullopt;
  return lacks("frozen weights leave no weight gradients to fill a zero-bubble schedule with", {"schedule 1f1b"});
}

std::optional<Rejection> optimizer(const RuleInput& in) {
  const OptimizerKind kind = in.job.optimizer.kind;
  const bool whole_matrices = kind == OptimizerKind::adafactor || kind == OptimizerKind::muon;
  if (whole_matrices && in.layout.sharding.kind != ShardingKind::none)
    return lacks("optimizer " + std::string(id_of(kind)) +
                     " works on whole matrices; sharded state cuts them by element",
                 {"sharding none", "optimizer adamw"});
  return std::nullopt;
}

} // namespace

void add_model_rules(RuleList& list) {
  list.push_back(
      make_rule("model-not-modelled", "Every layer has a memory and a time formula.", modelled, RuleScope::degrees));
  list.push_back(
      make_rule("block-features", "The framework has layers of the model's kind.", block_features, RuleScope::degrees));
  list.push_back(make_rule("split-norms",
                           "Norms of queries and keys over all heads are split over tp where the framework does so.",
                           split_norms, RuleScope::degrees));
  list.push_back(make_rule("learned-positions", "A learned position table has a row for each token of a sequence.",
                           positions, RuleScope::degrees));
  list.push_back(make_rule("precision", "The precision recipe is modelled and the framework has it.", precision,
                           RuleScope::degrees));
  list.push_back(make_rule("gradient-fusion", "Weight gradients are summed in a way that the framework has.",
                           gradient_fusion, RuleScope::degrees));
  list.push_back(
      make_rule("adapters", "Layers that carry adapters exist and are modelled.", adapters, RuleScope::degrees));
  list.push_back(
      make_rule("adapter-schedule", "Schedules that split the backward need weight gradients.", adapter_schedule));
  list.push_back(make_rule("optimizer-sharding", "Optimizers on whole matrices need unsharded state.", optimizer,
                           RuleScope::sharding));
}

} // namespace foretrain
