// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/runs.h"

#include <algorithm>

#include "db/store.h"
#include "planner/explain.h"

namespace foretrain::gui {
namespace {

constexpr int kMostRuns = 500;

std::string_view text_of(RunStatus status) {
  switch (status) {
  case RunStatus::running: return "running";
  case RunStatus::done: return "done";
  case RunStatus::failed: return "failed";
  case RunStatus::interrupted: return "interrupted";
  }
  return "";
}

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void add_figures(const std::vector<RunFigure>& figures, MeasuredRun& run) {
  std::vector<double> steps;
  for (const RunFigure& figure : figures) {
    if (figure.item == "step_time") steps.push_back(figure.value);
    if (figure.item == "peak_allocated") run.measured_bytes = std::max(run.measured_bytes.value_or(0), figure.value);
  }
  run.measured_seconds = median(std::move(steps));
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
    run.title = summary.model + " · " + describe(plan.layout);
    run.created_at = summary.created_at;
    run.status = std::string(text_of(summary.status));
    if (!predictions.empty()) add_prediction(predictions.front().prediction, run);
    add_figures(figures, run);
    runs.push_back(std::move(run));
  }
  return runs;
}

} // namespace foretrain::gui
