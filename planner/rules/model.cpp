#include <algorithm>

#include "core/program/blocks.h"
#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

bool low_precision(Precision precision) {
  switch (precision) {
  case Precision::fp8_delayed:
  case Precision::fp8_current:
  case Precision::fp8_blockwise:
  case Precision::mxfp8:
  case Precision::nvfp4: return true;
  case Precision::fp64:
  case Precision::fp32:
  case Precision::bf16:
  case Precision::fp16: return false;
  }
  return false;
}

std::optional<Rejection> modelled(const RuleInput& in) { return unsupported(in.model); }

std::optional<Rejection> precision(const RuleInput& in) {
  const std::string id(id_of(in.job.precision));
  if (low_precision(in.job.precision))
    return reject("precision " + id + " changes what is saved and cast; its memory and time are not modelled yet", 0, 0,
                  {"precision bf16"});
  const auto& list = in.semantics.precisions;
  if (!list.empty() && std::find(list.begin(), list.end(), in.job.precision) == list.end())
    return reject(in.semantics.name + " does not train in " + id, 0, 0);
  return std::nullopt;
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
  list.push_back(make_rule("precision", "The precision recipe is modelled and the framework has it.", precision, RuleScope::degrees));
  list.push_back(make_rule("optimizer-sharding", "Optimizers on whole matrices need unsharded state.", optimizer, RuleScope::sharding));
}

} // namespace foretrain
