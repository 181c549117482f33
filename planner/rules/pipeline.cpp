#include <algorithm>
#include <numeric>

#include <functional>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/program/schedules/schedule.h"
#include "planner/rules/all.h"

namespace foretrain {
namespace {

std::optional<Rejection> schedule_supported(const RuleInput& in) {
  const Layout& l = in.layout;
  const Schedule* schedule = schedules().find(l.schedule.kind);
  if (!schedule) return reject("schedule '" + l.schedule.kind + "' is unknown", 0, 0, {hint_for(l.schedule.kind, schedules().ids())});
  if (l.schedule.chunks > 1 && !schedule->takes_chunks())
    return reject(fmt::format("schedule {} has one chunk per stage, not {}", l.schedule.kind, l.schedule.chunks), l.schedule.chunks, 1, {"schedule interleaved"});
  if (l.pp == 1 && l.schedule.chunks > 1)
    return reject(fmt::format("{} chunks per stage need pp > 1", l.schedule.chunks), l.schedule.chunks, 1, {"chunks 1"});
  if (l.pp == 1) return std::nullopt;
  const auto& list = in.semantics.schedules;
  if (list.empty()) return reject(in.semantics.name + " has no pipeline parallelism", l.pp, 1, {"pp 1"});
  if (std::find(list.begin(), list.end(), l.schedule.kind) == list.end()) {
    std::vector<std::string> nearest;
    for (const std::string& id : list) nearest.push_back("schedule " + id);
    return reject(fmt::format("{} has no schedule {}", in.semantics.name, l.schedule.kind), 1, 0, std::move(nearest));
  }
  return std::nullopt;
}

std::optional<Rejection> layers(const RuleInput& in) {
  const Layout& l = in.layout;
  const std::int64_t chunks = std::int64_t{l.pp} * l.schedule.chunks;
  if (!l.layers_per_stage.empty()) {
    if (static_cast<std::int64_t>(l.layers_per_stage.size()) != chunks)
      return reject(fmt::format("layers_per_stage has {} entries, pp {} × chunks {} = {}", l.layers_per_stage.size(), l.pp, l.schedule.chunks, chunks),
                    static_cast<double>(l.layers_per_stage.size()), static_cast<double>(chunks));
    const std::int64_t sum = std::accumulate(l.layers_per_stage.begin(), l.layers_per_stage.end(), std::int64_t{0});
    if (sum != in.model.layers)
      return reject(fmt::format("layers_per_stage adds up to {}, the model has {} layers", sum, in.model.layers), static_cast<double>(sum), in.model.layers);
    if (!in.semantics.uneven_stages && std::adjacent_find(l.layers_per_stage.begin(), l.layers_per_stage.end(), std::not_equal_to<>()) != l.layers_per_stage.end())
      return reject(in.semantics.name + " gives every stage the same number of layers", 1, 0);
    return std::nullopt;
  }
  if (chunks > in.model.layers)
    return reject(fmt::format("pp {} × chunks {} = {} model chunks, the model has {} layers", l.pp, l.schedule.chunks, chunks, in.model.layers),
                  static_cast<double>(chunks), in.model.layers);
  const bool must_divide = !in.semantics.uneven_stages || (l.schedule.chunks > 1 && in.semantics.interleaved_needs_even_layers);
  if (!must_divide || in.model.layers % chunks == 0) return std::nullopt;
  return reject(fmt::format("{} layers cannot be split evenly over pp {} × chunks {}", in.model.layers, l.pp, l.schedule.chunks), static_cast<double>(chunks), in.model.layers,
                nearest_values("pp", l.pp, in.model.layers, [&](std::int64_t p) { return in.model.layers % (p * l.schedule.chunks) == 0; }));
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
  return reject(fmt::format("{} cannot share the tied embedding of {} between first and last of pp {} stages", in.semantics.name, in.model.name, in.layout.pp),
                in.layout.pp, 1, {"pp 1"});
}

std::optional<Rejection> schedule_shape(const RuleInput& in) {
  const Layout& l = in.layout;
  const Schedule* schedule = schedules().find(l.schedule.kind);
  if (!schedule || l.micro_batch < 1 || l.dp() < 1) return std::nullopt; // other rules speak of these
  const std::int64_t micro_batches = in.job.global_batch / (std::int64_t{l.micro_batch} * l.dp());
  if (micro_batches < 1) return std::nullopt;
  if (micro_batches > kScheduleLimit)
    return reject(fmt::format("{} micro-batches per step, at most {} are simulated", micro_batches, kScheduleLimit), static_cast<double>(micro_batches), static_cast<double>(kScheduleLimit));
  const ScheduleShape shape{l.pp, l.schedule.chunks, static_cast<int>(micro_batches)};
  if (auto rejection = schedule->legal(shape)) {
    rejection->rule.clear();
    return rejection;
  }
  const bool blocking = l.pp > 1 && (!l.overlap.p2p || (!schedule->overlaps_p2p() && in.semantics.p2p_blocking_1f1b));
  if (!blocking) return std::nullopt;
  if (l.schedule.chunks > 1) return reject("interleaved schedules are modelled with overlapped transfers only", 1, 0, {"overlap.p2p true"});
  if (auto rejection = schedule->legal_blocking(shape)) {
    rejection->rule.clear();
    return rejection;
  }
  return std::nullopt;
}

} // namespace

void add_pipeline_rules(RuleList& list) {
  list.push_back(make_rule("schedule-supported", "The framework has the schedule.", schedule_supported, RuleScope::schedule, no_schedule));
  list.push_back(make_rule("layers-pp", "The layers split over stages and chunks.", layers, RuleScope::schedule, too_many_stages));
  list.push_back(make_rule("tied-embeddings-pp", "The framework shares a tied table across stages.", tied, RuleScope::degrees));
  list.push_back(make_rule("schedule-micro-batches", "The schedule runs with this number of micro-batches.", schedule_shape, RuleScope::micro_batch));
}

} // namespace foretrain
