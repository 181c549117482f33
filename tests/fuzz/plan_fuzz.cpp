// A plan: an error, or one that reads back equal, that the rules judge and that, when legal and small, is predicted.
#include "core/base/json.h"
#include "core/spec/calibration.h"
#include "core/spec/io.h"
#include "planner/evaluate.h"
#include "planner/rules/rule.h"
#include "tests/fuzz/target.h"

using namespace foretrain;

namespace {

constexpr int kMostLayers = 32;
constexpr int kMostDevices = 256;
constexpr std::int64_t kMostSequences = 4096;

void predict(const Plan& plan) {
  const Result<Semantics> semantics = fuzz::data().semantics(plan.job.semantics);
  if (!semantics) return;
  const int devices = device_count(plan.cluster);
  const RuleInput input{plan.model, plan.cluster, plan.job, *semantics, plan.layout, devices};
  if (!all_rejections(input).empty()) return;
  if (plan.model.layers > kMostLayers || devices > kMostDevices || plan.job.global_batch > kMostSequences) return;
  const Result<Calibration> calibration = load_calibration(fuzz::data().root, plan.cluster.device);
  if (!calibration) return;
  const Result<Evaluator> evaluator = Evaluator::make(plan.model, plan.cluster, plan.job, *semantics, *calibration);
  if (!evaluator) return;
  const Prediction prediction = evaluator->predict(plan.layout);
  fuzz::require(prediction.step_time.value > 0, "a legal plan takes time");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const Result<Json> json = parse_json(fuzz::text_of(bytes, size), "input");
  if (!json) return 0;
  const Result<Plan> plan = plan_from(*json, "input", fuzz::data());
  if (!plan) return 0;
  const Result<Plan> again = plan_from(to_json(*plan), "again", fuzz::data());
  fuzz::require(again.has_value() && *again == *plan, "a plan that was read reads back equal");
  predict(*plan);
  return 0;
}
