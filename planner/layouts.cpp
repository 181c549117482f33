#include "planner/layouts.h"

#include <algorithm>

#include "core/spec/cluster.h"

namespace foretrain {
namespace {

std::vector<int> divisors(std::int64_t n) {
  std::vector<int> list;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    list.push_back(static_cast<int>(d));
    if (d != n / d) list.push_back(static_cast<int>(n / d));
  }
  std::sort(list.begin(), list.end());
  return list;
}

/// The values asked for, or all.
template <class T> std::vector<T> chosen(const std::vector<T>& asked, std::vector<T> all) {
  return asked.empty() ? std::move(all) : asked;
}

bool contains(const std::vector<int>& list, int value) { return list.empty() || std::find(list.begin(), list.end(), value) != list.end(); }

template <class T> bool allows(const std::vector<T>& list, T value) { return std::find(list.begin(), list.end(), value) != list.end(); }

std::vector<RecomputeModule> modules_of(const ModelSpec& model, const Semantics& semantics) {
  std::vector<RecomputeModule> list;
  const bool dense = !model.moe || model.moe->first_dense > 0 || model.moe->every > 1 || !model.moe->dense_layers.empty();
  for (const RecomputeModule module : semantics.recompute_modules) {
    if (module == RecomputeModule::mla_up && !model.latent) continue;
    if (module == RecomputeModule::moe && !model.moe) continue;
    if (module == RecomputeModule::mlp && !dense) continue;
    list.push_back(module);
  }
  std::sort(list.begin(), list.end());
  return list;
}

/// none; every set of modules; full with every layer; full of the first quarter, half and three quarters of each chunk.
std::vector<RecomputeChoice> recomputations(const ModelSpec& model, const Semantics& semantics, const std::vector<RecomputeKind>& kinds, int layers_per_chunk) {
  std::vector<RecomputeChoice> list;
  const auto wanted = [&](RecomputeKind kind) { return allows(semantics.recompute, kind) && (kinds.empty() || allows(kinds, kind)); };
  if (wanted(RecomputeKind::none)) list.push_back({});
  if (wanted(RecomputeKind::selective)) {
    const std::vector<RecomputeModule> modules = modules_of(model, semantics);
    for (unsigned set = 1; set < 1U << modules.size(); ++set) {
      RecomputeChoice choice;
      choice.kind = RecomputeKind::selective;
      for (std::size_t i = 0; i < modules.size(); ++i)
        if (set >> i & 1U) choice.modules.push_back(modules[i]);
      // A recomputed feed-forward contains its activation: with both sorts of layers it is the other sort's that counts.
      const bool block = allows(choice.modules, RecomputeModule::mlp) || allows(choice.modules, RecomputeModule::moe);
      const bool both_sorts = allows(modules, RecomputeModule::mlp) && allows(modules, RecomputeModule::moe);
      if (block && !both_sorts && allows(choice.modules, RecomputeModule::activation)) continue;
      list.push_back(std::move(choice));
    }
  }
  if (wanted(RecomputeKind::full)) {
    RecomputeChoice whole;
    whole.kind = RecomputeKind::full;
    list.push_back(whole);
    int before = 0;
    for (const int quarter : {1, 2, 3}) {
      const int count = layers_per_chunk * quarter / 4;
      if (count == before || count >= layers_per_chunk) continue;
      before = count;
      RecomputeChoice block;
      block.kind = RecomputeKind::full;
      block.method = RecomputeMethod::block;
      block.count = count;
      list.push_back(std::move(block));
    }
  }
  return list;
}

std::vector<ScheduleChoice> schedules_of(const Study& study, const Semantics& semantics, int pp) {
  if (pp == 1) return {ScheduleChoice{}};
  std::vector<ScheduleChoice> list;
  for (const std::string_view kind : kScheduleKinds) {
    const std::string name(kind);
    if (!allows(semantics.schedules, name)) continue;
    if (!study.space.schedules.empty() && !allows(study.space.schedules, name)) continue;
    if (name != "interleaved") {
      list.push_back({name, 1});
      continue;
    }
    for (int chunks = 2; chunks <= study.model.layers / pp; ++chunks) {
      const bool even = study.model.layers % (pp * chunks) == 0;
      if (contains(study.space.chunks, chunks) && (even || !semantics.interleaved_needs_even_layers)) list.push_back({name, chunks});
    }
  }
  if (list.empty()) list.push_back({}); // so that a rule can say why the pipeline is not to be had
  return list;
}

std::vector<ContextChoice> contexts_of(const Study& study, const Semantics& semantics, int cp) {
  if (cp == 1) return {ContextChoice{}};
  std::vector<ContextChoice> list;
  for (const ContextKind kind : semantics.context_parallel) {
    if (!study.space.context_parallel.empty() && !allows(study.space.context_parallel, kind)) continue;
    if (kind != ContextKind::ulysses_ring) {
      list.push_back({kind, 1});
      continue;
    }
    for (const int inner : divisors(cp))
      if (inner > 1 && inner < cp) list.push_back({kind, inner});
  }
  if (list.empty()) list.push_back({});
  return list;
}

} // namespace

LayoutSpace::LayoutSpace(const Study& study, const Semantics& semantics) : study_(study), semantics_(semantics) {
  const int devices = device_count(study.cluster);
  const std::vector<int> all = divisors(devices);
  for (const int tp : chosen(study.space.tp, all))
    for (const int pp : chosen(study.space.pp, all))
      for (const int cp : chosen(study.space.cp, all)) {
        const std::int64_t model = std::int64_t{tp} * pp * cp;
        if (model <= 0 || model > devices || devices % model != 0) continue;
        const int dp = static_cast<int>(devices / model);
        // Experts fold over the ranks of a stage; without experts there is nothing to fold.
        const std::vector<int> ep_all = study.model.moe ? divisors(devices / pp) : std::vector<int>{1};
        for (const int ep : chosen(study.space.ep, ep_all))
          for (const int etp : chosen(study.space.etp, study.model.moe ? divisors(tp) : std::vector<int>{1})) {
            if (study.model.moe && ep > study.model.moe->experts) continue;
            const bool repeats = semantics.family == SemanticsFamily::fsdp || !study.space.dp_replicate.empty();
            for (const int replicate : chosen(study.space.dp_replicate, repeats ? divisors(dp) : std::vector<int>{1})) {
              if (replicate <= 0 || dp % replicate != 0) continue;
              Group group;
              group.degrees.tp = tp;
              group.degrees.pp = pp;
              group.degrees.cp = cp;
              group.degrees.ep = ep;
              group.degrees.etp = etp;
              group.degrees.dp_replicate = replicate;
              group.degrees.dp_shard = dp / replicate;
              groups_.push_back(std::move(group));
            }
          }
      }
  for (Group& group : groups_) {
    const Dimensions d = dimensions_of(group.degrees);
    std::int64_t per_schedule = 0;
    for (const ScheduleChoice& schedule : d.schedules) {
      const int layers = std::max(1, (study.model.layers + group.degrees.pp * schedule.chunks - 1) / (group.degrees.pp * schedule.chunks));
      per_schedule += static_cast<std::int64_t>(recomputations(study.model, semantics, study.space.recompute, layers).size());
    }
    group.size = per_schedule;
    for (const std::size_t count : {d.micro_batch.size(), d.sequence_parallel.size(), d.sharding.size(), d.context.size(), d.dispatch.size(), d.offload.size()})
      group.size *= static_cast<std::int64_t>(count);
    size_ += group.size;
  }
}

std::int64_t LayoutSpace::group_size(std::size_t group) const { return groups_[group].size; }
const Layout& LayoutSpace::degrees(std::size_t group) const { return groups_[group].degrees; }

LayoutSpace::Dimensions LayoutSpace::dimensions_of(const Layout& degrees) const {
  const SearchSpace& space = study_.space;
  Dimensions d;
  const std::int64_t per_rank = std::max<std::int64_t>(1, study_.job.global_batch / degrees.dp());
  d.micro_batch = chosen(space.micro_batch, divisors(per_rank));
  d.sequence_parallel = degrees.tp == 1 ? std::vector<bool>{false}
                        : semantics_.sequence_parallel_always ? std::vector<bool>{true}
                        : semantics_.sequence_parallel        ? std::vector<bool>{true, false}
                                                              : std::vector<bool>{false};
  if (degrees.tp > 1 && !space.sequence_parallel.empty()) d.sequence_parallel = space.sequence_parallel;
  d.schedules = schedules_of(study_, semantics_, degrees.pp);
  for (const ShardingKind kind : semantics_.sharding) {
    if (!space.sharding.empty() && !allows(space.sharding, kind)) continue;
    // On one rank nothing can be sharded: one way is enough.
    if (degrees.dp() * degrees.cp == 1 && !d.sharding.empty()) continue;
    d.sharding.push_back({kind, std::nullopt});
  }
  d.context = contexts_of(study_, semantics_, degrees.cp);
  if (degrees.ep * degrees.etp == 1) d.dispatch = {DispatchChoice{}};
  else
    for (const DispatchKind kind : semantics_.dispatch)
      if (space.expert_dispatch.empty() || allows(space.expert_dispatch, kind)) d.dispatch.push_back({kind});
  if (d.dispatch.empty()) d.dispatch.push_back({});
  d.offload = space.offload_optimizer.empty() ? std::vector<bool>{false} : space.offload_optimizer;
  return d;
}

std::int64_t LayoutSpace::visit_group(std::size_t index, const Visit& visit, const Visit& admit) const {
  const Group& group = groups_[index];
  const Dimensions d = dimensions_of(group.degrees);
  Layout layout = group.degrees;
  std::int64_t skipped = 0;
  for (const ScheduleChoice& schedule : d.schedules) {
    const int chunks = layout.pp * schedule.chunks;
    const int layers = std::max(1, (study_.model.layers + chunks - 1) / chunks);
    const std::vector<RecomputeChoice> recompute = recomputations(study_.model, semantics_, study_.space.recompute, layers);
    const std::size_t inside = d.micro_batch.size() * d.sequence_parallel.size() * d.context.size() * d.dispatch.size() * recompute.size();
    layout.schedule = schedule;
    for (const ShardingChoice& sharding : d.sharding) {
      layout.sharding = sharding;
      for (const bool offload : d.offload) {
        layout.offload.optimizer = offload;
        layout.micro_batch = d.micro_batch.front();
        layout.sequence_parallel = d.sequence_parallel.front();
        layout.context_parallel = d.context.front();
        layout.expert_dispatch = d.dispatch.front();
        layout.recompute = {};
        if (admit && !admit(layout)) {
          skipped += static_cast<std::int64_t>(inside);
          continue;
        }
        if (!visit_inside(layout, d, recompute, visit)) return skipped;
      }
    }
  }
  return skipped;
}

bool LayoutSpace::visit_inside(Layout& layout, const Dimensions& d, const std::vector<RecomputeChoice>& recompute, const Visit& visit) {
  for (const int micro_batch : d.micro_batch) {
    layout.micro_batch = micro_batch;
    for (const bool sp : d.sequence_parallel) {
      layout.sequence_parallel = sp;
      for (const ContextChoice& context : d.context) {
        layout.context_parallel = context;
        for (const DispatchChoice& dispatch : d.dispatch) {
          layout.expert_dispatch = dispatch;
          for (const RecomputeChoice& choice : recompute) {
            layout.recompute = choice;
            if (!visit(layout)) return false;
          }
        }
      }
    }
  }
  return true;
}

} // namespace foretrain
