#include "planner/explain.h"

#include <optional>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/io.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/commands/explain_row.h"
#include "planner/cli/describe_prediction.h"
#include "planner/cli/inputs.h"
#include "planner/cli/progress.h"
#include "planner/cli/table.h"
#include "planner/search.h"

namespace foretrain::cli {
namespace {

struct Predicted {
  Plan plan;
  Prediction prediction;
};

/// The best plan for the same model, cluster and job.
Result<std::optional<Predicted>> best_of_search(const Context& context, const ExplainOptions& options,
                                                const LoadedPlan& loaded, Engine engine) {
  Study study;
  study.model = loaded.plan.model;
  study.cluster = loaded.plan.cluster;
  study.job = loaded.plan.job;
  ProgressLine line(context.progress);
  SearchOptions search_options;
  search_options.jobs = jobs_or_cores(options.jobs);
  search_options.top = 1;
  search_options.keep = 50;
  search_options.best = 1;
  search_options.front = false;
  search_options.near_misses = 0;
  search_options.refine = engine != Engine::slots;
  search_options.refine_simgrid = engine == Engine::simgrid ? 1 : 0;
  search_options.worker = context.worker.string();
  search_options.data = context.data.root.string();
  search_options.stop = context.stop;
  search_options.progress = [&line](const Progress& progress) { line.show(progress); };
  FORETRAIN_TRY(const SearchResult result, search(study, loaded.semantics, loaded.calibration, search_options));
  line.clear();
  if (!result.complete) return tl::unexpected<Error>(Error{Error::Kind::cancelled, "interrupted", "", ""});
  if (result.ranked.empty()) return std::optional<Predicted>();
  const Candidate& best = result.ranked.front();
  return std::optional<Predicted>({{study.model, study.cluster, study.job, best.layout}, best.prediction});
}

Result<std::optional<Predicted>> baseline_of(const Context& context, const ExplainOptions& options,
                                             const LoadedPlan& loaded, Engine engine) {
  if (options.against.empty()) return best_of_search(context, options, loaded, engine);
  FORETRAIN_TRY(const LoadedPlan other, load_plan(context, options.against));
  FORETRAIN_TRY(Prediction prediction, predict(other.plan, other.semantics, other.calibration, engine,
                                               context.worker.string(), context.data.root.string()));
  return std::optional<Predicted>({other.plan, std::move(prediction)});
}

std::string signed_time(Seconds seconds) {
  return (seconds.value < 0 ? "-" : "+") + pretty(Seconds(std::abs(seconds.value)));
}

std::string explanation_text(const Predicted& plan, const Predicted& baseline, const Explanation& explanation,
                             bool searched, int width) {
  std::string text = wrapped(job_line(plan.plan.model, plan.plan.cluster, plan.plan.job), width);
  text += wrapped(describe(plan.plan.layout), width) + fmt::format("  step {}\n", pretty(explanation.step));
  text += wrapped((searched ? "against the best of a search: " : "against: ") + describe(baseline.plan.layout), width);
  text += fmt::format("  step {}\n\n", pretty(explanation.baseline_step));
  if (explanation.layout_changes.empty()) text += "the layouts are equal\n";
  for (const std::string& change : explanation.layout_changes) text += "  " + change + "\n";
  text += fmt::format("\n  {:<10} {:>10}\n", "against", pretty(explanation.baseline_step));
  for (const Difference& difference : explanation.time)
    text += fmt::format("  {:<10} {:>10}   {} instead of {}\n", id_of(difference.part),
                        signed_time(difference.plan - difference.baseline), pretty(difference.plan),
                        pretty(difference.baseline));
  text += fmt::format("  {:<10} {:>10}\n", "this plan", pretty(explanation.step));
  if (plan.prediction.verdict != Verdict::fits) text += "\nthis plan " + summary_lines(plan.prediction, width);
  return text;
}

Json explanation_json(const Predicted& plan, const Predicted& baseline, const Explanation& explanation) {
  Json json;
  json["step_time_s"] = explanation.step.value;
  json["baseline_step_time_s"] = explanation.baseline_step.value;
  json["time"] = Json::array();
  for (const Difference& difference : explanation.time)
    json["time"].push_back({{"part", std::string(id_of(difference.part))},
                            {"plan_s", difference.plan.value},
                            {"baseline_s", difference.baseline.value},
                            {"difference_s", (difference.plan - difference.baseline).value}});
  json["layout_changes"] = explanation.layout_changes;
  json["prediction"] = to_json(plan.prediction);
  json["baseline"] = {{"plan", to_json(baseline.plan)}, {"prediction", to_json(baseline.prediction)}};
  return json;
}

} // namespace

int run_explain(const Context& context, const ExplainOptions& options) {
  if (const auto jobs = check_jobs(options.jobs); !jobs) return complain(jobs.error());
  if (names_a_row(options.against)) return explain_row(context, options);
  if (options.plan.empty())
    return complain(
        {Error::Kind::input, "no plan", "plan", "foretrain explain PLAN.json, or --against ROWS.csv:ROW_ID alone"});
  const auto engine = engine_of(context, options.engine);
  if (!engine) return complain(engine.error());
  const auto loaded = load_plan(context, options.plan);
  if (!loaded) return complain(loaded.error());
  auto prediction = predict(loaded->plan, loaded->semantics, loaded->calibration, *engine, context.worker.string(),
                            context.data.root.string());
  if (!prediction) return complain(prediction.error());
  const Predicted plan{loaded->plan, std::move(*prediction)};
  if (plan.prediction.verdict == Verdict::illegal) {
    if (options.json) return print_and(Json{{"prediction", to_json(plan.prediction)}}.dump(2) + "\n", kNothingFits);
    return print_and(summary_lines(plan.prediction, context.width), kNothingFits);
  }
  const auto baseline = baseline_of(context, options, *loaded, *engine);
  if (!baseline) return complain(baseline.error());
  if (!*baseline)
    return print_and(options.json
                         ? Json{{"prediction", to_json(plan.prediction)}}.dump(2) + "\n"
                         : "nothing fits on this cluster, so that there is nothing to compare with\n\nthis plan " +
                               summary_lines(plan.prediction, context.width),
                     kNothingFits);
  if ((*baseline)->prediction.verdict == Verdict::illegal)
    return complain({Error::Kind::input, "this plan cannot run: " + (*baseline)->prediction.rejections.front().reason,
                     "--against", ""});
  const Explanation explanation = explain(plan.plan, plan.prediction, (*baseline)->plan, (*baseline)->prediction);
  const int code = plan.prediction.verdict == Verdict::fits ? kDone : kNothingFits;
  if (options.json) return print_and(explanation_json(plan, **baseline, explanation).dump(2) + "\n", code);
  return print_and(explanation_text(plan, **baseline, explanation, options.against.empty(), context.width), code);
}

} // namespace foretrain::cli
