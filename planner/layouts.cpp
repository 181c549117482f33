#include "planner/layouts.h"

#include <algorithm>

#include "core/spec/cluster.h"
#include "planner/twins.h"

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

bool contains(const std::vector<int>& list, int value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

template <class T> bool allows(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::vector<RecomputeModule> modules_of(const ModelSpec& model, const Semantics& semantics) {
  std::vector<RecomputeModule> list;
  const bool dense =
      !model.moe || model.moe->first_dense > 0 || model.moe->every > 1 || !model.moe->dense_layers.empty();
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
std::vector<RecomputeChoice> recomputations(const ModelSpec& model, const Semantics& semantics,
                                            const std::vector<RecomputeKind>& kinds, int layers_per_chunk) {
  std::vector<RecomputeChoice> list;
  const auto wanted = [&](RecomputeKind kind) {
    return allows(semantics.recompute, kind) && (kinds.empty() || allows(kinds, kind));
  };
  if (wanted(RecomputeKind::none)) list.push_back({});
  if (wanted(RecomputeKind::selective)) {
    const std::vector<RecomputeModule> modules = modules_of(model, semantics);
    for (unsigned set = 1; set < 1U << modules.size(); ++set) {
      RecomputeChoice choice;
      choice.kind = RecomputeKind::selective;
      for (std::size_t i = 0; i < modules.size(); ++i)
        if (set >> i & 1U) choice.modules.push_back(modules[i]);
      // A recomputed feed-forward contains its activation: with both sorts of layers it is the other sort's that
      // counts.
      const bool block = allows(choice.modules, RecomputeModule::mlp) || allows(choice.modules, RecomputeModule::moe);
      const bool both_sorts = allows(modules, RecomputeModule::mlp) && allows(modules, RecomputeModule::moe);
      if (block && !both_sorts && allows(choice.modules, RecomputeModule::activation)) continue;
      list.push_back(std::move(choice));
    }
  }
  if (wanted(RecomputeKind::operators)) {
    RecomputeChoice kept;
    kept.kind = RecomputeKind::operators;
    list.push_back(kept);
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

/// Sizes of the interleaved schedule's groups; that of the stages once.
std::vector<int> groups_of(const SearchSpace& space, int pp) {
  std::vector<int> list;
  for (const int group : space.groups.empty() ? std::vector<int>{0} : space.groups)
    if (const int own = group == pp ? 0 : group; !allows(list, own)) list.push_back(own);
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
      if (contains(study.space.chunks, chunks) && (even || !semantics.interleaved_needs_even_layers))
        for (const int group : groups_of(study.space, pp)) list.push_back({name, chunks, group});
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
              Layout degrees;
              degrees.tp = tp;
              degrees.pp = pp;
              degrees.cp = cp;
              degrees.ep = ep;
              degrees.etp = etp;
              degrees.dp_replicate = replicate;
              degrees.dp_shard = dp / replicate;
              add_group(degrees);
            }
          }
      }
}

void LayoutSpace::add_group(const Layout& degrees) {
  const auto [stages, new_stages] = stages_.try_emplace(degrees.pp);
  if (new_stages) {
    stages->second.schedules = schedules_of(study_, semantics_, degrees.pp);
    for (const ScheduleChoice& schedule : stages->second.schedules) {
      const std::int64_t chunks = std::int64_t{degrees.pp} * schedule.chunks;
      const auto layers = static_cast<int>(std::max<std::int64_t>(1, (study_.model.layers + chunks - 1) / chunks));
      const auto [choices, added] = recompute_.try_emplace(layers);
      if (added) choices->second = recomputations(study_.model, semantics_, study_.space.recompute, layers);
      stages->second.recompute.push_back(&choices->second);
    }
  }
  const auto [micro_batch, new_degree] = micro_batch_.try_emplace(degrees.dp());
  if (new_degree)
    micro_batch->second =
        chosen(study_.space.micro_batch, divisors(std::max<std::int64_t>(1, study_.job.global_batch / degrees.dp())));
  Group group{degrees, dimensions_of(degrees).below(Dimension::degrees, 0)};
  size_ += group.size;
  groups_.push_back(std::move(group));
}

std::int64_t LayoutSpace::group_size(std::size_t group) const {
  return groups_[group].size;
}
const Layout& LayoutSpace::degrees(std::size_t group) const {
  return groups_[group].degrees;
}

/// Overlap is tried under sequence parallelism; where nothing else is asked for, everywhere, so that a rule can say why
/// it is not to be had.
std::vector<LayoutSpace::TensorChoice> LayoutSpace::tensor_choices(const Layout& degrees) const {
  if (degrees.tp == 1) return {TensorChoice{}};
  const SearchSpace& space = study_.space;
  const std::vector<bool> sequence =
      chosen(space.sequence_parallel, semantics_.sequence_parallel_always ? std::vector<bool>{true}
                                      : semantics_.sequence_parallel      ? std::vector<bool>{true, false}
                                                                          : std::vector<bool>{false});
  const std::vector<bool> overlap =
      chosen(space.overlap_tp, semantics_.tp_overlap ? std::vector<bool>{false, true} : std::vector<bool>{false});
  std::vector<TensorChoice> list;
  for (const bool split : sequence)
    for (const bool beside : overlap)
      if (split || !beside || !allows(overlap, false)) list.push_back({split, beside});
  return list;
}

LayoutSpace::Dimensions LayoutSpace::dimensions_of(const Layout& degrees) const {
  const SearchSpace& space = study_.space;
  Dimensions d;
  d.micro_batch = &micro_batch_.at(degrees.dp());
  d.tensor = tensor_choices(degrees);
  const Stages& stages = stages_.at(degrees.pp);
  d.schedules = &stages.schedules;
  d.recompute = &stages.recompute;
  for (const ShardingKind kind : semantics_.sharding) {
    if (!space.sharding.empty() && !allows(space.sharding, kind)) continue;
    // Where nothing can be sharded one way is enough.
    if (!d.sharding.empty() && !shards_anything(degrees, study_.model.moe.has_value())) continue;
    d.sharding.push_back({kind, std::nullopt});
  }
  d.context = contexts_of(study_, semantics_, degrees.cp);
  if (degrees.ep * degrees.etp == 1)
    d.dispatch = {DispatchChoice{}};
  else
    for (const DispatchKind kind : semantics_.dispatch)
      if (space.expert_dispatch.empty() || allows(space.expert_dispatch, kind)) {
        // Nothing travels between experts of one rank group: copies cannot be spared.
        if (kind == DispatchKind::deduplicated && degrees.ep == 1 && !d.dispatch.empty()) continue;
        d.dispatch.push_back({kind});
      }
  if (d.dispatch.empty()) d.dispatch.push_back({});
  d.offload = space.offload_optimizer.empty() ? std::vector<bool>{false} : space.offload_optimizer;
  return d;
}

std::int64_t LayoutSpace::Dimensions::below(Dimension settled, std::size_t schedule) const {
  const auto all = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  std::int64_t layouts = 0;
  if (settled < Dimension::schedule)
    for (const auto* list : *recompute) layouts += all(*list);
  else
    layouts = settled < Dimension::recompute ? all(*(*recompute)[schedule]) : 1;
  if (settled < Dimension::sharding) layouts *= all(sharding);
  if (settled < Dimension::offload) layouts *= all(offload);
  if (settled < Dimension::micro_batch) layouts *= all(*micro_batch);
  if (settled < Dimension::sequence_parallel) layouts *= all(tensor);
  if (settled < Dimension::context) layouts *= all(context);
  if (settled < Dimension::dispatch) layouts *= all(dispatch);
  return layouts;
}

/// One walk over a group.
class LayoutSpace::Tree {
public:
  Tree(const Layout& degrees, const Dimensions& dimensions, Walk& walk)
      : d_(dimensions), walk_(walk), layout_(degrees) {
    layout_.context_parallel = d_.context.front();
    layout_.schedule = d_.schedules->front();
    layout_.sharding = d_.sharding.front();
    layout_.offload.optimizer = d_.offload.front();
    layout_.micro_batch = d_.micro_batch->front();
    d_.tensor.front().apply_to(layout_);
    layout_.expert_dispatch = d_.dispatch.front();
  }

  void run() {
    const std::vector<ScheduleChoice>& list = *d_.schedules;
    for (schedule_ = 0; schedule_ < list.size() && !ended_; ++schedule_) {
      layout_.schedule = list[schedule_];
      branch(Dimension::schedule, [&] { inside(); });
    }
  }

private:
  void inside() {
    each(Dimension::sharding, d_.sharding, layout_.sharding, [&] {
      each(Dimension::offload, d_.offload, layout_.offload.optimizer,
           [&] { each(Dimension::micro_batch, *d_.micro_batch, layout_.micro_batch, [&] { tensor(); }); });
    });
  }
  void tensor() {
    for (std::size_t i = 0; i < d_.tensor.size() && !ended_; ++i) {
      d_.tensor[i].apply_to(layout_);
      branch(Dimension::sequence_parallel, [&] {
        each(Dimension::context, d_.context, layout_.context_parallel,
             [&] { each(Dimension::dispatch, d_.dispatch, layout_.expert_dispatch, [&] { leaves(); }); });
      });
    }
    d_.tensor.front().apply_to(layout_);
  }
  void leaves() {
    const std::vector<RecomputeChoice>& choices = *(*d_.recompute)[schedule_];
    ended_ = !walk_.visit(layout_, choices, index_);
    index_ += static_cast<std::int64_t>(choices.size());
  }
  template <class List, class Member, class Below>
  void each(Dimension dimension, const List& list, Member& member, Below&& below) {
    for (std::size_t i = 0; i < list.size() && !ended_; ++i) {
      member = list[i];
      branch(dimension, below);
    }
    member = list.front();
  }
  template <class Below> void branch(Dimension dimension, Below&& below) {
    const std::int64_t layouts = d_.below(dimension, schedule_);
    if (walk_.enter(dimension, layout_, layouts))
      below();
    else
      index_ += layouts;
  }

  const Dimensions& d_;
  Walk& walk_;
  Layout layout_;
  std::size_t schedule_ = 0;
  std::int64_t index_ = 0;
  bool ended_ = false;
};

void LayoutSpace::walk_group(std::size_t group, Walk& walk) const {
  if (groups_[group].size == 0) return; // a dimension without a value
  const Dimensions dimensions = dimensions_of(groups_[group].degrees);
  Tree(groups_[group].degrees, dimensions, walk).run();
}

void LayoutSpace::visit_group(std::size_t group, const std::function<bool(const Layout&)>& visit) const {
  class Each final : public Walk {
  public:
    explicit Each(const std::function<bool(const Layout&)>& call) : call_(call) {}
    bool enter(Dimension, const Layout&, std::int64_t) override { return true; }
    bool visit(const Layout& layout, std::span<const RecomputeChoice> choices, std::int64_t) override {
      Layout own = layout;
      for (const RecomputeChoice& choice : choices) {
        own.recompute = choice;
        if (!call_(own)) return false;
      }
      return true;
    }

  private:
    const std::function<bool(const Layout&)>& call_;
  };
  Each each(visit);
  walk_group(group, each);
}

std::pair<Layout, std::size_t> LayoutSpace::pick(const Layout& degrees, const Dimensions& d, std::int64_t index) {
  Layout layout = degrees;
  std::int64_t rest = index; // within what lies below the dimensions so far
  std::size_t schedule = 0;
  const auto take = [&](Dimension dimension) {
    const std::int64_t each = d.below(dimension, schedule);
    const std::int64_t at = rest / each;
    rest %= each;
    return static_cast<std::size_t>(at);
  };
  for (; rest >= d.below(Dimension::schedule, schedule); ++schedule) rest -= d.below(Dimension::schedule, schedule);
  layout.schedule = (*d.schedules)[schedule];
  layout.sharding = d.sharding[take(Dimension::sharding)];
  layout.offload.optimizer = d.offload[take(Dimension::offload)];
  layout.micro_batch = (*d.micro_batch)[take(Dimension::micro_batch)];
  d.tensor[take(Dimension::sequence_parallel)].apply_to(layout);
  layout.context_parallel = d.context[take(Dimension::context)];
  layout.expert_dispatch = d.dispatch[take(Dimension::dispatch)];
  layout.recompute = (*(*d.recompute)[schedule])[static_cast<std::size_t>(rest)];
  return {std::move(layout), schedule};
}

std::pair<Layout, std::span<const RecomputeChoice>> LayoutSpace::leaf(LayoutPosition position) const {
  const Layout& degrees = groups_[position.group].degrees;
  const Dimensions d = dimensions_of(degrees);
  auto [layout, schedule] = pick(degrees, d, position.index);
  return {std::move(layout), *(*d.recompute)[schedule]};
}

std::vector<Layout> LayoutSpace::at(std::span<const LayoutPosition> positions) const {
  std::vector<Layout> layouts;
  Dimensions d;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const Layout& degrees = groups_[positions[i].group].degrees;
    if (i == 0 || positions[i].group != positions[i - 1].group) d = dimensions_of(degrees);
    layouts.push_back(pick(degrees, d, positions[i].index).first);
  }
  return layouts;
}

} // namespace foretrain
