// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/runs.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/base/json.h"
#include "core/program/ranks.h"
#include "db/store.h"
#include "planner/compare.h"
#include "planner/explain.h"
#include "planner/search.h"

namespace foretrain::gui {
namespace {

constexpr int kMostRuns = 500;

void add_figures(const std::vector<RunFigure>& figures, MeasuredRun& run) {
  std::vector<double> steps;
  for (const RunFigure& figure : figures) {
    if (figure.item == "step_time" && !figure.rank) steps.push_back(figure.value);
    if (figure.item == "peak_allocated") run.measured_bytes = std::max(run.measured_bytes.value_or(0), figure.value);
  }
  if (!steps.empty()) run.measured_seconds = median_of(std::move(steps));
}

void add_prediction(const Prediction& prediction, MeasuredRun& run) {
  if (prediction.step_time.value > 0) run.predicted_seconds = prediction.step_time.value;
  for (const StageMemory& stage : prediction.memory)
    run.predicted_bytes = std::max(run.predicted_bytes.value_or(0), double(stage.allocated.value));
}

} // namespace

Result<std::vector<MeasuredRun>> read_runs(const Environment& environment, const std::filesystem::path& path) {
  FORETRAIN_TRY(const Store store, Store::open(path, OpenMode::read, environment.data));
  FORETRAIN_TRY(const std::vector<RunSummary> summaries, store.runs(kMostRuns));
  std::vector<MeasuredRun> runs;
  for (const RunSummary& summary : summaries) {
    FORETRAIN_TRY(const Plan plan, store.run_plan(summary.id));
    FORETRAIN_TRY(const auto predictions, store.run_predictions(summary.id));
    FORETRAIN_TRY(const auto figures, store.run_figures(summary.id));
    MeasuredRun run;
    run.id = summary.id.value;
    run.message = summary.message;
    run.device = plan.cluster.device.name;
    run.steps = summary.steps;
    std::vector<int> fanouts;
    for (const TierSpec& tier : plan.cluster.tiers) fanouts.push_back(tier.fanout);
    const Mesh mesh(plan.layout, fanouts);
    for (int rank = 0; rank < mesh.world(); ++rank) run.stage_of_rank.push_back(mesh.coordinate(rank, Axis::pp));
    run.title = summary.model + " · " + describe(plan.layout);
    run.created_at = summary.created_at;
    run.status = std::string(foretrain::id_of(summary.status));
    if (!predictions.empty()) add_prediction(predictions.front().prediction, run);
    add_figures(figures, run);
    runs.push_back(std::move(run));
  }
  return runs;
}

Result<std::vector<RankChange>> rank_changes(const Environment& environment, const Results& results,
                                             const Calibration& after, std::size_t most) {
  FORETRAIN_TRY(const Semantics semantics, environment.data.semantics(results.study.job.semantics));
  FORETRAIN_TRY(const Calibration before, calibration_of(environment, results.study.cluster.device));
  std::vector<RankChange> changes;
  const Study& study = results.study;
  for (std::size_t i = 0; i < results.rows.size() && i < most; ++i) {
    const Plan plan{study.model, study.cluster, study.job, results.rows[i].layout};
    RankChange change;
    change.row = static_cast<int>(i);
    for (const auto& [calibration, seconds] :
         {std::pair(&before, &change.before_s), std::pair(&after, &change.after_s)}) {
      FORETRAIN_TRY(const Prediction prediction,
                    predict(plan, semantics, *calibration, Engine::replay, "", environment.data.root.string()));
      *seconds = prediction.verdict == Verdict::illegal ? 0 : prediction.step_time.value;
    }
    if (change.before_s > 0) changes.push_back(change);
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const RankChange& a, const RankChange& b) { return a.after_s < b.after_s; });
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i].rank = static_cast<int>(i);
  return changes;
}

Result<std::optional<std::string>> kept_calibration(const std::filesystem::path& file) {
  if (file.empty()) return fail_environment("calibration", "there is no folder for it", "set HOME or XDG_DATA_HOME");
  std::error_code problem;
  if (!std::filesystem::exists(file, problem)) return std::optional<std::string>();
  FORETRAIN_TRY(std::string text, read_text_file(file.string()));
  return std::optional<std::string>(std::move(text));
}

Result<void> keep_calibration(const std::filesystem::path& file, const std::optional<std::string>& text) {
  std::error_code problem;
  std::filesystem::create_directories(file.parent_path(), problem);
  if (problem) return fail_environment(file.parent_path().string(), "cannot be made: " + problem.message());
  std::filesystem::path old = file;
  old += ".before";
  if (std::filesystem::exists(file, problem))
    std::filesystem::copy_file(file, old, std::filesystem::copy_options::overwrite_existing, problem);
  if (text) return write_text_file(file.string(), *text);
  if (!std::filesystem::remove(file, problem) && problem)
    return fail_environment(file.string(), "cannot be removed: " + problem.message());
  return {};
}

} // namespace foretrain::gui
