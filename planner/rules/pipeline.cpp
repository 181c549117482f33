#include <algorithm>
#include <numeric>

#include <functional>

#include <fmt/format.h>

#include "core/program/lower.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

constexpr const char* kUnpiped = "schedule 1f1b, chunks 1";
constexpr const char* kUnstaged = "pp 1, schedule 1f1b, chunks 1";
constexpr const char* kEven = "layers_per_stage []";

/// The schedules as changes.
std::vector<std::string> named(const std::vector<std::string>& schedules) {
  std::vector<std::string> nearest;
  for (const std::string& id : schedules)
    nearest.push_back(fmt::format("schedule {}{}", id, id == "interleaved" ? "" : ", chunks 1"));
  return or_else(std::move(nearest), kUnstaged);
}

std::optional<Rejection> schedule_supported(const RuleInput& in) {
  const Layout& l = in.layout;
  const auto& list = in.semantics.schedules;
  const Schedule* schedule = schedules().find(l.schedule.kind);
  if (!schedule)
    return lacks("schedule '" + l.schedule.kind + "' is unknown",
                 l.pp == 1 ? std::vector<std::string>{kUnpiped} : named(list));
  if (l.pp == 1 && l.schedule.chunks > 1)
    return reject(fmt::format("{} chunks per stage need pp > 1; with pp 1 there is 1", l.schedule.chunks),
                  l.schedule.chunks, 1, {kUnpiped});
  const bool has = std::find(list.begin(), list.end(), l.schedule.kind) != list.end();
  // What a framework does without stages (gradients accumulate, forward and backward in turn) is what 1f1b says there.
  if (l.pp == 1 && l.schedule.kind != ScheduleChoice{}.kind) {
    std::vector<std::string> nearest = {kUnpiped};
    if (has) nearest.emplace_back("pp 2");
    return reject(
        fmt::format("schedule {} orders at least 2 stages; pp is 1, where forward and backward alternate (1f1b)",
                    l.schedule.kind),
        2, 1, std::move(nearest));
  }
  if (l.pp == 1) return std::nullopt;
  if (list.empty())
    return reject(fmt::format("{} has no pipeline parallelism: pp {}, 1 is possible", in.semantics.name, l.pp), l.pp, 1,
                  {kUnstaged});
  if (!has) return lacks(fmt::format("{} has no schedule {}", in.semantics.name, l.schedule.kind), named(list));
  if (l.schedule.chunks > 1 && !schedule->takes_chunks())
    return reject(fmt::format("schedule {} has 1 chunk per stage, not {}", l.schedule.kind, l.schedule.chunks),
                  l.schedule.chunks, 1, {"chunks 1"});
  return std::nullopt;
}

std::optional<Rejection> layers(const RuleInput& in) {
  const Layout& l = in.layout;
  const std::int64_t chunks = std::int64_t{l.pp} * l.schedule.chunks;
  if (!l.layers_per_stage.empty()) {
    if (static_cast<std::int64_t>(l.layers_per_stage.size()) != chunks)
      return reject(fmt::format("layers_per_stage has {} entries, pp {} × chunks {} = {}", l.layers_per_stage.size(),
                                l.pp, l.schedule.chunks, chunks),
                    static_cast<double>(l.layers_per_stage.size()), static_cast<double>(chunks), {kEven});
    const std::int64_t sum = std::accumulate(l.layers_per_stage.begin(), l.layers_per_stage.end(), std::int64_t{0});
    if (sum != in.model.layers)
      return reject(fmt::format("layers_per_stage adds up to {}, the model has {} layers", sum, in.model.layers),
                    static_cast<double>(sum), in.model.layers, {kEven});
    if (!in.semantics.uneven_stages && std::adjacent_find(l.layers_per_stage.begin(), l.layers_per_stage.end(),
                                                          std::not_equal_to<>()) != l.layers_per_stage.end()) {
      const auto [least, most] = std::minmax_element(l.layers_per_stage.begin(), l.layers_per_stage.end());
      return reject(fmt::format("{} gives every stage the same number of layers; here one has {} and another {}",
                                in.semantics.name, *most, *least),
                    *most, *least, {kEven});
    }
    return std::nullopt;
  }
  const bool must_divide =
      !in.semantics.uneven_stages || (l.schedule.chunks > 1 && in.semantics.interleaved_needs_even_layers);
  const auto nearest = [&] {
    return or_else(nearest_values("pp", l.pp, in.model.layers,
                                  [&](std::int64_t p) {
                                    const std::int64_t parts = p * l.schedule.chunks;
                                    return parts <= in.model.layers && (!must_divide || in.model.layers % parts == 0);
                                  }),
                   kUnstaged);
  };
  if (chunks > in.model.layers)
    return reject(fmt::format("pp {} × chunks {} = {} model chunks, the model has {} layers", l.pp, l.schedule.chunks,
                              chunks, in.model.layers),
                  static_cast<double>(chunks), in.model.layers, nearest());
  if (!must_divide || in.model.layers % chunks == 0) return std::nullopt;
  return reject(fmt::format("{} layers cannot be split evenly over pp {} × chunks {} = {}", in.model.layers, l.pp,
                            l.schedule.chunks, chunks),
                static_cast<double>(chunks), in.model.layers, nearest());
}

/// Whatever the schedule.
std::optional<Rejection> no_schedule(const RuleInput& in) {
  return in.layout.pp > 1 && in.semantics.schedules.empty() ? schedule_supported(in) : std::nullopt;
}
std::optional<Rejection> too_many_stages(const RuleInput& in) {
  const Layout& l = in.layout;
  const bool even = in.semantics.uneven_stages || in.model.layers % l.pp == 0;
  return l.layers_per_stage.empty() && (l.pp > in.model.layers || !even) ? layers(in) : std::nullopt;
}

std::optional<Rejection> tied(const RuleInput& in) {
  if (in.layout.pp == 1 || !in.model.tied_embeddings || in.semantics.tied_with_pp) return std::nullopt;
  return reject(
      fmt::format("{} cannot share the tied embedding of {} between first and last of pp {} stages, 1 is possible",
                  in.semantics.name, in.model.name, in.layout.pp),
      in.layout.pp, 1, {kUnstaged});
}

std::optional<Rejection> groups(const RuleInput& in) {
  const Layout& l = in.layout;
  const int group = l.schedule.group;
  if (group == 0 || group == l.pp || l.pp == 1 || in.semantics.micro_batch_groups) return std::nullopt;
  return lacks(fmt::format("{} cannot choose the size of the interleaved schedule's groups of micro-batches: group {}, "
                           "as many as the {} stages is possible",
                           in.semantics.name, group, l.pp),
               {fmt::format("group {}", l.pp)});
}

/// The smallest size of groups by which a step of so many micro-batches can run; 0: none.
int other_group(const RuleInput& in, const Schedule& schedule, ScheduleShape shape) {
  if (!schedule.takes_chunks() || !in.semantics.micro_batch_groups || !in.layout.overlap.p2p) return 0;
  const auto fits = [&shape] {
    const int rest = shape.micro_batches % shape.group;
    return rest == 0 || rest >= shape.stages;
  };
  for (shape.group = shape.stages; shape.group < shape.micro_batches && !fits();) ++shape.group;
  return schedule.legal(shape) ? 0 : shape.group;
}

std::optional<Rejection> micro_batches_fit(const RuleInput& in) {
  const Layout& l = in.layout;
  const Schedule* schedule = schedules().find(l.schedule.kind);
  if (!schedule || l.micro_batch < 1 || l.dp() < 1) return std::nullopt; // other rules speak of these
  const std::int64_t micro_batches = in.job.global_batch / (std::int64_t{l.micro_batch} * l.dp());
  if (micro_batches < 1) return std::nullopt;
  if (micro_batches > kScheduleLimit)
    return reject(fmt::format("{} micro-batches per step, at most {} are simulated", micro_batches, kScheduleLimit),
                  static_cast<double>(micro_batches), static_cast<double>(kScheduleLimit),
                  {fmt::format("global_batch {}",
                               std::max<std::int64_t>(1, kScheduleLimit / (std::int64_t{l.pp} * l.schedule.chunks)) *
                                   l.micro_batch * l.dp())});
  const ScheduleShape shape = schedule_shape(in.job, l);
  if (auto rejection = schedule->legal(shape)) {
    rejection->rule.clear();
    if (const int group = other_group(in, *schedule, shape))
      rejection->nearest.push_back(fmt::format("group {}", group));
    return rejection;
  }
  const bool blocking = l.pp > 1 && (!l.overlap.p2p || (!schedule->overlaps_p2p() && in.semantics.p2p_blocking_1f1b));
  if (!blocking) return std::nullopt;
  if (l.schedule.chunks > 1 && in.semantics.family == SemanticsFamily::foretrain)
    return reject(fmt::format("foretrain runs interleaved schedules with overlapped transfers only: {} chunks, 1 is "
                              "possible",
                              l.schedule.chunks),
                  l.schedule.chunks, 1, {"overlap.p2p true"});
  if (auto rejection = schedule->legal_blocking(shape)) {
    rejection->rule.clear();
    return rejection;
  }
  return std::nullopt;
}

} // namespace

void add_pipeline_rules(RuleList& list) {
  list.push_back(make_rule("schedule-supported", "The framework has the schedule.", schedule_supported,
                           RuleScope::schedule, no_schedule));
  list.push_back(
      make_rule("layers-pp", "The layers split over stages and chunks.", layers, RuleScope::schedule, too_many_stages));
  list.push_back(
      make_rule("tied-embeddings-pp", "The framework shares a tied table across stages.", tied, RuleScope::degrees));
  list.push_back(make_rule("schedule-group", "The framework can choose the size of the schedule's groups.", groups,
                           RuleScope::schedule));
  list.push_back(make_rule("schedule-micro-batches", "The schedule runs with this number of micro-batches.",
                           micro_batches_fit, RuleScope::micro_batch));
}

} // namespace foretrain
