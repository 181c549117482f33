#include "planner/explain.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/spec/names.h"

namespace foretrain {
namespace {

std::string recompute_text(const RecomputeChoice& recompute) {
  switch (recompute.kind) {
  case RecomputeKind::none:
    return "no recompute";
  case RecomputeKind::selective: {
    std::string text = "recompute ";
    for (std::size_t i = 0; i < recompute.modules.size(); ++i)
      text += (i > 0 ? "+" : "") + std::string(id_of(recompute.modules[i]));
    return text;
  }
  case RecomputeKind::operators:
    return "recompute operators";
  case RecomputeKind::full:
    if (!recompute.count) return "recompute full";
    return fmt::format("recompute {} {}", id_of(recompute.method), *recompute.count);
  }
  return "";
}

std::string schedule_text(const Layout& layout) {
  if (layout.pp == 1) return "";
  std::string text = layout.schedule.kind;
  if (layout.schedule.chunks > 1) text += fmt::format("×{}", layout.schedule.chunks);
  if (layout.schedule.group > 0) text += fmt::format(" group {}", layout.schedule.group);
  return text;
}

std::string context_text(const Layout& layout) {
  if (layout.cp == 1) return "";
  std::string text(id_of(layout.context_parallel.kind));
  if (layout.context_parallel.kind == ContextKind::ulysses_ring)
    text += std::to_string(layout.context_parallel.ulysses);
  return text;
}

std::string sharding_text(const Layout& layout) {
  switch (layout.sharding.kind) {
  case ShardingKind::none:
    return "ZeRO-0";
  case ShardingKind::optimizer:
    return "ZeRO-1";
  case ShardingKind::gradients:
    return "ZeRO-2";
  case ShardingKind::parameters:
    return "ZeRO-3";
  }
  return "";
}

} // namespace

std::string describe(const Layout& layout) {
  std::string text = fmt::format("tp{} pp{} cp{} dp{}", layout.tp, layout.pp, layout.cp, layout.dp());
  if (layout.dp_replicate > 1) text += fmt::format(" (×{} replicas)", layout.dp_replicate);
  if (layout.ep > 1 || layout.etp > 1) text += fmt::format(" ep{} etp{}", layout.ep, layout.etp);
  text += fmt::format(" · mb {}", layout.micro_batch);
  if (layout.sequence_parallel) text += " · sp";
  if (layout.overlap.tp) text += " · tp overlap";
  for (const std::string& part : {schedule_text(layout), context_text(layout)})
    if (!part.empty()) text += " · " + part;
  if (layout.ep > 1) text += " · " + std::string(id_of(layout.expert_dispatch.kind));
  text += " · " + sharding_text(layout) + " · " + recompute_text(layout.recompute);
  if (layout.offload.optimizer) text += " · optimizer on host";
  return text;
}

Explanation explain(const Plan& plan, const Prediction& prediction, const Plan& baseline,
                    const Prediction& baseline_prediction) {
  Explanation result;
  result.step = prediction.step_time;
  result.baseline_step = baseline_prediction.step_time;
  for (int p = 0; p < kTimeParts; ++p) {
    const auto at = static_cast<std::size_t>(p);
    if (prediction.time[at].value == 0 && baseline_prediction.time[at].value == 0) continue;
    result.time.push_back({static_cast<TimePart>(p), prediction.time[at], baseline_prediction.time[at]});
  }
  std::stable_sort(result.time.begin(), result.time.end(), [](const Difference& a, const Difference& b) {
    return std::abs(a.plan.value - a.baseline.value) > std::abs(b.plan.value - b.baseline.value);
  });
  const Layout& a = plan.layout;
  const Layout& b = baseline.layout;
  const auto number = [&](const char* name, int mine, int theirs) {
    if (mine != theirs) result.layout_changes.push_back(fmt::format("{} {} instead of {}", name, mine, theirs));
  };
  number("tp", a.tp, b.tp);
  number("pp", a.pp, b.pp);
  number("cp", a.cp, b.cp);
  number("dp", a.dp(), b.dp());
  number("ep", a.ep, b.ep);
  number("etp", a.etp, b.etp);
  number("dp_replicate", a.dp_replicate, b.dp_replicate);
  number("micro_batch", a.micro_batch, b.micro_batch);
  const auto text = [&](const char* name, const std::string& mine, const std::string& theirs) {
    if (mine != theirs)
      result.layout_changes.push_back(
          fmt::format("{}: {} instead of {}", name, mine.empty() ? "none" : mine, theirs.empty() ? "none" : theirs));
  };
  text("sequence parallel", a.sequence_parallel ? "on" : "off", b.sequence_parallel ? "on" : "off");
  text("tp overlap", a.overlap.tp ? "on" : "off", b.overlap.tp ? "on" : "off");
  text("schedule", schedule_text(a), schedule_text(b));
  text("context parallel", context_text(a), context_text(b));
  text("sharding", sharding_text(a), sharding_text(b));
  text("recompute", recompute_text(a.recompute), recompute_text(b.recompute));
  if (a.ep > 1 && b.ep > 1)
    text("dispatch", std::string(id_of(a.expert_dispatch.kind)), std::string(id_of(b.expert_dispatch.kind)));
  text("optimizer", a.offload.optimizer ? "on host" : "on device", b.offload.optimizer ? "on host" : "on device");
  return result;
}

} // namespace foretrain
