#include <algorithm>

#include <fmt/format.h>

#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

bool has_dense(const ModelSpec& model) {
  return !model.moe || model.moe->first_dense > 0 || model.moe->every > 1 || !model.moe->dense_layers.empty();
}

/// Why the model has nothing that this module would redo; nothing when it has.
const char* missing(const ModelSpec& model, RecomputeModule module) {
  switch (module) {
  case RecomputeModule::mla_up:
    return model.latent ? nullptr : "latent attention";
  case RecomputeModule::moe:
    return model.moe ? nullptr : "experts";
  case RecomputeModule::mlp:
    return has_dense(model) ? nullptr : "dense feed-forward";
  case RecomputeModule::core_attention:
  case RecomputeModule::layernorm:
  case RecomputeModule::activation:
    return nullptr;
  }
  return nullptr;
}

/// The modules that framework and model have, `without` aside; none of them: no recomputation.
std::vector<std::string> modules_of(const RuleInput& in, std::optional<RecomputeModule> without = std::nullopt) {
  std::string list;
  const auto& known = in.semantics.recompute_modules;
  for (const RecomputeModule module : in.layout.recompute.modules)
    if (module != without && !missing(in.model, module) && std::find(known.begin(), known.end(), module) != known.end())
      list += fmt::format("{}{}", list.empty() ? "" : " ", id_of(module));
  return {list.empty() ? "recompute none" : "recompute.modules [" + list + "]"};
}

std::vector<std::string> kinds_of(const Semantics& semantics) {
  std::vector<std::string> nearest;
  for (const RecomputeKind kind : semantics.recompute)
    if (kind != RecomputeKind::selective) nearest.push_back(fmt::format("recompute {}", id_of(kind)));
  return nearest;
}

std::optional<Rejection> supported(const RuleInput& in) {
  const RecomputeChoice& r = in.layout.recompute;
  const auto& kinds = in.semantics.recompute;
  if (std::find(kinds.begin(), kinds.end(), r.kind) == kinds.end())
    return lacks(fmt::format("{} has no {} recomputation", in.semantics.name, id_of(r.kind)), kinds_of(in.semantics));
  const auto& modules = in.semantics.recompute_modules;
  for (const RecomputeModule module : r.modules)
    if (std::find(modules.begin(), modules.end(), module) == modules.end())
      return lacks(fmt::format("{} cannot recompute {} alone", in.semantics.name, id_of(module)), modules_of(in));
  return std::nullopt;
}

std::optional<Rejection> sensible(const RuleInput& in) {
  const RecomputeChoice& r = in.layout.recompute;
  if (r.kind == RecomputeKind::selective && r.modules.empty()) {
    std::vector<std::string> nearest = {"recompute none"};
    for (const RecomputeModule module : in.semantics.recompute_modules)
      if (!missing(in.model, module)) nearest.push_back(fmt::format("recompute.modules [{}]", id_of(module)));
    return lacks("selective recomputation names no module", std::move(nearest));
  }
  if (r.kind == RecomputeKind::operators && (in.model.moe || in.model.latent))
    return lacks("what a policy by operator keeps of experts or latent attention is not modelled",
                 {"recompute full", "recompute none"});
  for (const RecomputeModule module : r.modules)
    if (const char* what = missing(in.model, module))
      return lacks(fmt::format("{} has no {} to recompute", in.model.name, what), modules_of(in));
  const auto has = [&r](RecomputeModule module) {
    return std::find(r.modules.begin(), r.modules.end(), module) != r.modules.end();
  };
  if ((has(RecomputeModule::mlp) || has(RecomputeModule::moe)) && has(RecomputeModule::activation) &&
      (!in.model.moe || !has_dense(in.model)))
    return reject("the recomputed feed-forward contains its activation: 2 modules redo it, 1 is possible", 2, 1,
                  modules_of(in, RecomputeModule::activation));
  return std::nullopt;
}

std::optional<Rejection> count(const RuleInput& in) {
  const RecomputeChoice& r = in.layout.recompute;
  if (r.kind != RecomputeKind::full || !r.count) return std::nullopt;
  if (!in.layout.layers_per_stage.empty() || in.layout.pp < 1 || in.layout.schedule.chunks < 1) return std::nullopt;
  const std::int64_t chunks = std::int64_t{in.layout.pp} * in.layout.schedule.chunks;
  const std::int64_t layers = (in.model.layers + chunks - 1) / chunks;
  if (*r.count >= 1 && *r.count <= layers) return std::nullopt;
  return reject(fmt::format("recompute.count {} with {} layers per chunk", *r.count, layers), *r.count,
                static_cast<double>(layers), {fmt::format("recompute.count {}", layers)});
}

} // namespace

void add_recompute_rules(RuleList& list) {
  list.push_back(make_rule("recompute-supported", "The framework has this recomputation.", supported));
  list.push_back(make_rule("recompute-modules", "What is recomputed exists in the model, once.", sensible));
  list.push_back(make_rule("recompute-count", "The count fits the layers of a chunk.", count));
}

} // namespace foretrain
