#include <optional>

#include "core/spec/framework_kernels.h"
#include "core/spec/intervals.h"
#include "planner/refine.h"
#include "planner/remedies.h"
#include "planner/rules/rule.h"
#include "planner/search.h"

namespace foretrain {

Result<Prediction> predict(const Plan& plan, const Semantics& framework, const Calibration& calibrated, Engine engine,
                           const std::string& worker, const std::string& data) {
  FORETRAIN_TRY(const OnDevice own, adapted(framework, calibrated, plan.cluster, data));
  const Semantics& semantics = own.semantics;
  const Calibration& calibration = own.calibration;
  FORETRAIN_TRY(const Evaluator evaluator, Evaluator::make(plan.model, plan.cluster, plan.job, semantics, calibration));
  const RuleInput input{plan.model, plan.cluster, plan.job, semantics, plan.layout, device_count(plan.cluster)};
  std::vector<Rejection> rejections = all_rejections(input);
  if (!rejections.empty()) {
    Prediction illegal;
    illegal.verdict = Verdict::illegal;
    illegal.engine = engine;
    illegal.rejections = std::move(rejections);
    return illegal;
  }
  FORETRAIN_TRY(Prediction prediction, predict_with(evaluator, plan, semantics, engine, worker, data));
  for (Rejection& rejection : prediction.rejections)
    if (rejection.rule == kOutOfMemory) rejection.nearest = remedies(evaluator, input);
  if (!data.empty()) {
    FORETRAIN_TRY(const Intervals intervals, read_intervals(data));
    set_intervals(prediction, intervals);
  }
  return prediction;
}

} // namespace foretrain
