#include "planner/finish.h"

#include <algorithm>

#include "core/base/shortage.h"
#include "core/program/context.h"
#include "core/program/flops.h"
#include "core/program/lower.h"
#include "core/program/schedules/schedule.h"
#include "planner/remedies.h"

namespace foretrain {
namespace {

/// Half width of the 80 % interval of a step time, as a share, by the worst evidence in it. Engineering estimates until
/// `validate` has residuals to replace them (docs/formulas.md, "Intervals").
double half_width(Evidence evidence) {
  switch (evidence) {
  case Evidence::measured:
    return 0.05;
  case Evidence::interpolated:
    return 0.08;
  case Evidence::fitted:
    return 0.12;
  case Evidence::datasheet:
    return 0.25;
  }
  return 0.25;
}

} // namespace

Utilisation::Utilisation(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                         const Semantics& semantics, int tp) {
  const FlopShape shape{job.sequence_length, job.packed, static_cast<int>(padded_vocab(model, job, semantics, tp)),
                        job.lora};
  const auto flop = flop_per_token(model, FlopConvention::megatron, shape);
  if (!flop) return;
  const double tokens = static_cast<double>(job.global_batch) * job.sequence_length / device_count(cluster);
  tflop_ = *flop * tokens / 1e12;
  if (const auto peak = dense_peak(cluster.device, job.precision))
    peak_share_ = utilisation_percent(*flop, tokens, *peak);
}

double Utilisation::tflops_per_device(double step_seconds) const {
  return step_seconds > 0 ? tflop_ / step_seconds : 0;
}

double Utilisation::mfu_percent(double step_seconds) const {
  return step_seconds > 0 ? peak_share_ / step_seconds : 0;
}

void finish_prediction(Prediction& prediction, const Plan& plan, const Semantics& semantics,
                       std::optional<Bytes> capacity) {
  const double step = prediction.step_time.value;
  const double devices = device_count(plan.cluster);
  if (step > 0) {
    const double tokens = static_cast<double>(plan.job.global_batch) * plan.job.sequence_length;
    prediction.tokens_per_s_per_device = tokens / step / devices;
    prediction.flop_convention = std::string(id_of(FlopConvention::megatron));
    const Utilisation used(plan.model, plan.cluster, plan.job, semantics, plan.layout.tp);
    prediction.model_tflops_per_device = used.tflops_per_device(step);
    prediction.mfu_percent = used.mfu_percent(step);
    const double width = half_width(prediction.evidence);
    prediction.step_time_interval = {Seconds(step * (1 - width)), Seconds(step * (1 + width))};
  }
  Bytes worst(0);
  int worst_stage = 0;
  for (std::size_t i = 0; i < prediction.memory.size(); ++i)
    if (prediction.memory[i].device > worst) {
      worst = prediction.memory[i].device;
      worst_stage = static_cast<int>(i);
    }
  constexpr double kMemoryHalfWidth = 0.04; // reserved against allocated spreads by this much in measured runs
  const auto scaled = [&](double factor) {
    return Bytes(static_cast<std::int64_t>(factor * static_cast<double>(worst.value)));
  };
  prediction.memory_interval = {scaled(1 - kMemoryHalfWidth), scaled(1 + kMemoryHalfWidth)};
  if (capacity && worst > *capacity) {
    prediction.verdict = Verdict::oom;
    Rejection rejection;
    rejection.rule = kOutOfMemory;
    rejection.reason =
        "stage " + std::to_string(worst_stage) + " " + shortage(worst, "a " + plan.cluster.device.name, *capacity);
    rejection.needed = static_cast<double>(worst.value);
    rejection.available = static_cast<double>(capacity->value);
    prediction.rejections.push_back(std::move(rejection));
  }
  if (plan.cluster.ranks_per_processor > 1)
    prediction.notes.push_back(std::to_string(plan.cluster.ranks_per_processor) +
                               " ranks share a processor: the device's figures are one rank's share while all compute, "
                               "and a rank that waits lends its own");
  if (!capacity)
    prediction.notes.push_back("the device's memory is not known: nothing is said about whether the plan fits");
  if (plan.layout.pp > 1)
    if (const Schedule* schedule = schedules().find(plan.layout.schedule.kind)) {
      std::string caution = schedule->caution(schedule_shape(plan.job, plan.layout));
      if (!caution.empty()) prediction.notes.push_back(std::move(caution));
    }
}

} // namespace foretrain
