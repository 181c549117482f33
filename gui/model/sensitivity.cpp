// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/sensitivity.h"

#include "planner/evaluate.h"
#include "planner/rules/rule.h"

namespace foretrain::gui {
namespace {

template <class Quantity> void scale(std::optional<Quantity>& figure, double factor) {
  if (figure) figure = Quantity(static_cast<decltype(figure->value)>(static_cast<double>(figure->value) * factor));
}

ClusterSpec scaled(ClusterSpec cluster, const std::vector<Factor>& factors) {
  std::size_t at = 0;
  for (TierSpec& tier : cluster.tiers) tier.link.bandwidth.value *= factors[at++].value;
  DeviceSpec& device = cluster.device;
  const double speed = factors[at++].value;
  for (auto* peak : {&device.fp32, &device.tf32, &device.fp16, &device.bf16, &device.fp8, &device.fp4, &device.fp64,
                     &device.achievable_bf16})
    scale(*peak, speed);
  scale(device.memory_bandwidth, factors[at++].value);
  scale(device.memory, factors[at].value);
  scale(device.usable_memory, factors[at].value);
  return cluster;
}

} // namespace

std::vector<Factor> factors_of(const Study& study) {
  std::vector<Factor> factors;
  for (const TierSpec& tier : study.cluster.tiers)
    factors.push_back({"link: " + tier.name, "bandwidth of the links of tier '" + tier.name + "'", 1});
  factors.push_back({"compute", "dense peaks of the device", 1});
  factors.push_back({"memory rate", "memory bandwidth of the device", 1});
  factors.push_back({"memory size", "memory that a device has", 1});
  return factors;
}

Result<std::vector<Rescaled>> rescaled(const Environment& environment, const Study& study,
                                       const std::vector<Factor>& factors, std::span<const Layout> layouts) {
  FORETRAIN_TRY(const Semantics semantics, environment.data.semantics(study.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, calibration_of(environment, study.cluster.device));
  FORETRAIN_TRY(const Evaluator evaluator,
                Evaluator::make(study.model, scaled(study.cluster, factors), study.job, semantics, calibration));
  Evaluator::Worker worker = evaluator.worker();
  std::vector<Rescaled> results;
  for (const Layout& layout : layouts) {
    const RuleInput input{study.model, study.cluster, study.job, semantics, layout, device_count(study.cluster)};
    if (!all_rejections(input).empty()) {
      results.push_back({0, 0, false, false});
      continue;
    }
    const Evaluation found = worker.evaluate(layout);
    const auto capacity = evaluator.capacity();
    results.push_back(
        {found.step_seconds, double(found.device_bytes), true, !capacity || found.device_bytes <= capacity->value});
  }
  return results;
}

} // namespace foretrain::gui
