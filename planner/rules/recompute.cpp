#include <algorithm>

#include <fmt/format.h>

#include "core/spec/names.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

std::optional<Rejection> supported(const RuleInput& in) {
  const RecomputeChoice& r = in.layout.recompute;
  const auto& kinds = in.semantics.recompute;
  if (std::find(kinds.begin(), kinds.end(), r.kind) == kinds.end())
    return reject(fmt::format("{} has no {} recomputation", in.semantics.name, id_of(r.kind)), 1, 0);
  const auto& modules = in.semantics.recompute_modules;
  for (const RecomputeModule module : r.modules)
    if (std::find(modules.begin(), modules.end(), module) == modules.end())
      return reject(fmt::format("{} cannot recompute {} alone", in.semantics.name, id_of(module)), 1, 0);
  return std::nullopt;
}

std::optional<Rejection> sensible(const RuleInput& in) {
  const RecomputeChoice& r = in.layout.recompute;
  if (r.kind == RecomputeKind::selective && r.modules.empty())
    return reject("selective recomputation names no module", 1, 0, {"recompute.modules [core-attention]", "recompute none"});
  if (r.kind == RecomputeKind::operators && (in.model.moe || in.model.latent))
    return reject("what a policy by operator keeps of experts or latent attention is not modelled", 1, 0, {"recompute full"});
  const bool moe = in.model.moe.has_value();
  const bool dense = !moe || in.model.moe->first_dense > 0 || in.model.moe->every > 1 || !in.model.moe->dense_layers.empty();
  for (const RecomputeModule module : r.modules) {
    if (module == RecomputeModule::mla_up && !in.model.latent) return reject(in.model.name + " has no latent attention to recompute", 1, 0);
    if (module == RecomputeModule::moe && !moe) return reject(in.model.name + " has no experts to recompute", 1, 0);
    if (module == RecomputeModule::mlp && !dense) return reject(in.model.name + " has no dense feed-forward to recompute", 1, 0);
  }
  const auto has = [&r](RecomputeModule module) { return std::find(r.modules.begin(), r.modules.end(), module) != r.modules.end(); };
  if ((has(RecomputeModule::mlp) || has(RecomputeModule::moe)) && has(RecomputeModule::activation) && (!moe || !dense))
    return reject("the recomputed feed-forward contains its activation already", 1, 0, {"recompute.modules without activation"});
  return std::nullopt;
}

std::optional<Rejection> count(const RuleInput& in) {
  const RecomputeChoice& r = in.layout.recompute;
  if (r.kind != RecomputeKind::full || !r.count) return std::nullopt;
  if (!in.layout.layers_per_stage.empty() || in.layout.pp < 1 || in.layout.schedule.chunks < 1) return std::nullopt;
  const std::int64_t chunks = std::int64_t{in.layout.pp} * in.layout.schedule.chunks;
  const std::int64_t layers = (in.model.layers + chunks - 1) / chunks;
  if (*r.count >= 1 && *r.count <= layers) return std::nullopt;
  return reject(fmt::format("recompute.count {} with {} layers per chunk", *r.count, layers), *r.count, static_cast<double>(layers), {fmt::format("recompute.count {}", layers)});
}

} // namespace

void add_recompute_rules(RuleList& list) {
  list.push_back(make_rule("recompute-supported", "The framework has this recomputation.", supported));
  list.push_back(make_rule("recompute-modules", "What is recomputed exists in the model, once.", sensible));
  list.push_back(make_rule("recompute-count", "The count fits the layers of a chunk.", count));
}

} // namespace foretrain
