#include <fmt/format.h>

#include "core/spec/io.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/describe_prediction.h"
#include "planner/cli/inputs.h"
#include "planner/cli/table.h"
#include "planner/cli/timeline.h"
#include "planner/explain.h"
#include "planner/search.h"

namespace foretrain::cli {
namespace {

std::string prediction_text(const Plan& plan, const Prediction& prediction, int width, bool color) {
  std::string text = wrapped(job_line(plan.model, plan.cluster, plan.job), width) + model_lines(plan.model, width);
  text += wrapped(describe(plan.layout), width) + "\n";
  text += summary_lines(prediction, width);
  if (!prediction.memory.empty())
    text += "\n" + bold("Memory per stage, GiB", color) + "\n" + memory_table(prediction, width);
  if (prediction.step_time.value > 0) text += "\n" + bold("Step time", color) + "\n" + time_table(prediction);
  return text;
}

} // namespace

int run_predict(const Context& context, const PredictOptions& options) {
  const auto engine = engine_of(context, options.engine);
  if (!engine) return complain(engine.error());
  const auto loaded = load_plan(context, options.plan);
  if (!loaded) return complain(loaded.error());
  const auto prediction = predict(loaded->plan, loaded->semantics, loaded->calibration, *engine,
                                  context.worker.string(), context.data.root.string());
  if (!prediction) return complain(prediction.error());
  const int code = prediction->verdict == Verdict::fits ? kDone : kNothingFits;
  if (!options.trace.empty() && prediction->verdict != Verdict::illegal) {
    if (const auto written = write_trace(context, *loaded, *engine, options.trace); !written)
      return complain(written.error());
    if (!options.json) remark(fmt::format("timeline in {}: open it in Perfetto or chrome://tracing", options.trace));
  }
  if (options.json) {
    Json document = to_json(*prediction);
    document["model"] = model_document(loaded->plan.model);
    return print_and(document.dump(2) + "\n", code);
  }
  return print_and(prediction_text(loaded->plan, *prediction, context.width, context.color), code);
}

} // namespace foretrain::cli
