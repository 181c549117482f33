#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/spec/calibration.h"
#include "planner/evaluate.h"
#include "planner/layouts.h"
#include "tests/cases/cases.h"

/// Studies, and layouts spread over their spaces, on which the engines of the planner are compared.
namespace foretrain::samples {

struct Setting {
  Plan plan;
  Semantics semantics;
  Calibration calibration;
};

inline Setting setting_of(const std::string& model, const std::string& cluster, int devices, int sequence,
                          std::int64_t batch, const std::string& framework) {
  Setting s;
  s.plan = cases::plan_of(model, cluster, devices, sequence, batch, framework);
  s.semantics = cases::semantics_of(s.plan);
  s.calibration = load_calibration(cases::data().root, s.plan.cluster.device).value();
  return s;
}

inline Evaluator evaluator_of(const Setting& s) {
  return std::move(*Evaluator::make(s.plan.model, s.plan.cluster, s.plan.job, s.semantics, s.calibration));
}

inline bool is_legal(const Setting& s, const Layout& layout) {
  return !first_rejection(
      {s.plan.model, s.plan.cluster, s.plan.job, s.semantics, layout, device_count(s.plan.cluster)});
}

/// Legal layouts of the setting's space, about `count` of them spread evenly over all groups of degrees.
inline std::vector<Layout> sample(const Setting& s, std::int64_t count) {
  Study study{s.plan.model, s.plan.cluster, s.plan.job, {}, Objective::step_time, ""};
  const LayoutSpace space(study, s.semantics);
  std::vector<Layout> legal;
  const std::int64_t stride = std::max<std::int64_t>(1, space.size() / (count * 8));
  std::int64_t at = 0;
  for (std::size_t group = 0; group < space.groups(); ++group)
    space.visit_group(group, [&](const Layout& layout) {
      if (at++ % stride == 0 && is_legal(s, layout)) legal.push_back(layout);
      return true;
    });
  std::vector<Layout> chosen;
  const std::size_t step = std::max<std::size_t>(1, legal.size() / static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < legal.size(); i += step) chosen.push_back(legal[i]);
  return chosen;
}

/// The same with switches that a space leaves as they are: every other layout gets one of them turned. Beside every
/// third one under sequence parallelism stands the same with overlap of tensor-parallel collectives, where the
/// framework has it.
inline std::vector<Layout> varied_sample(const Setting& s, std::int64_t count) {
  std::vector<Layout> layouts = sample(s, count);
  for (std::size_t i = 1; i < layouts.size(); i += 2) {
    Layout turned = layouts[i];
    switch (i / 2 % 4) {
    case 0:
      turned.overlap.dp_gradients = false;
      break;
    case 1:
      turned.overlap.p2p = false;
      break;
    case 2:
      turned.overlap.dp_parameters = false;
      break;
    default:
      if (turned.sharding.kind == ShardingKind::parameters)
        turned.sharding.reshard_after_forward = turned.pp > 1; // not what frameworks do by themselves
      break;
    }
    if (is_legal(s, turned)) layouts[i] = turned;
  }
  int split = 0;
  for (std::size_t i = 0, plain = layouts.size(); i < plain; ++i) {
    Layout beside = layouts[i];
    if (!beside.sequence_parallel || split++ % 3 != 0) continue;
    beside.overlap.tp = true;
    if (is_legal(s, beside)) layouts.push_back(beside);
  }
  return layouts;
}

} // namespace foretrain::samples
