#include <algorithm>

#include "core/program/blocks.h"
#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

std::optional<Rejection> modelled(const RuleInput& in) { return unsupported(in.model); }

std::optional<Rejection> positions(const RuleInput& in) {
  const int rows = in.model.learned_positions;
  if (rows == 0 || in.job.sequence_length <= rows) return std::nullopt;
  return reject("sequence length " + std::to_string(in.job.sequence_length) + " needs a learned position for each token, " +
                    in.model.name + " has " + std::to_string(rows),
                in.job.sequence_length, rows, {"sequence_length " + std::to_string(rows)});
}

std::optional<Rejection> precision(const RuleInput& in) {
  const std::string id(id_of(in.job.precision));
  const auto& list = in.semantics.precisions;
  if (!list.empty() && std::find(list.begin(), list.end(), in.job.precision) == list.end())
    return reject(in.semantics.name + " does not train in " + id, 0, 0);
  return std::nullopt;
}

std::optional<Rejection> adapters(const RuleInput& in) {
  if (!in.job.lora) return std::nullopt;
  const LoraChoice& lora = *in.job.lora;
  const auto carries = [&lora](AdapterTarget target) {
    return std::find(lora.targets.begin(), lora.targets.end(), target) != lora.targets.end();
  };
  if (in.model.mtp_layers > 0) return reject("adapters beside multi-token-prediction layers are not modelled", in.model.mtp_layers, 0);
  if (in.model.latent && carries(AdapterTarget::qkv))
    return reject("latent attention has no joint query, key and value projection to carry an adapter", 1, 0, {"lora.targets attention-out"});
  if (in.model.moe && (carries(AdapterTarget::ffn_up) || carries(AdapterTarget::ffn_down)))
    return reject("adapters of experts are not modelled", 1, 0, {"lora.targets qkv, attention-out"});
  if (lora.rank % in.layout.tp != 0)
    return reject("tp divides the rank of an adapter", lora.rank, in.layout.tp, {"a rank that is a multiple of tp"});
  return std::nullopt;
}

std::optional<Rejection> adapter_schedule(const RuleInput& in) {
  if (!in.job.lora || in.layout.schedule.kind.rfind("zb", 0) != 0) return std::nullopt;
  return reject("frozen weights leave no weight gradients to fill a zero-bubble schedule with", 1, 0, {"schedule 1f1b"});
}

std::optional<Rejection> optimizer(const RuleInput& in) {
  const OptimizerKind kind = in.job.optimizer.kind;
  const bool whole_matrices = kind == OptimizerKind::adafactor || kind == OptimizerKind::muon;
  if (whole_matrices && in.layout.sharding.kind != ShardingKind::none)
    return reject("optimizer " + std::string(id_of(kind)) + " works on whole matrices; sharded state cuts them by element", 1, 0,
                  {"sharding none"});
  return std::nullopt;
}

} // namespace

void add_model_rules(RuleList& list) {
  list.push_back(make_rule("model-not-modelled", "Every layer has a memory and a time formula.", modelled, RuleScope::degrees));
  list.push_back(make_rule("learned-positions", "A learned position table has a row for each token of a sequence.", positions, RuleScope::degrees));
  list.push_back(make_rule("precision", "The precision recipe is modelled and the framework has it.", precision, RuleScope::degrees));
  list.push_back(make_rule("adapters", "Layers that carry adapters exist and are modelled.", adapters, RuleScope::degrees));
  list.push_back(make_rule("adapter-schedule", "Schedules that split the backward need weight gradients.", adapter_schedule));
  list.push_back(make_rule("optimizer-sharding", "Optimizers on whole matrices need unsharded state.", optimizer, RuleScope::sharding));
}

} // namespace foretrain
