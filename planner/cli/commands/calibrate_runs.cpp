#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "core/program/lower.h"
#include "core/spec/io.h"
#include "db/store.h"
#include "planner/calibrate.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/inputs.h"
#include "planner/cli/table.h"
#include "planner/compare.h"
#include "planner/search.h"

namespace foretrain::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRuns = 1000;

/// A run that the calibration learns from, with its step as measured and as predicted before and after.
struct Learned {
  RunId id;
  Plan plan;
  double measured = 0;
  double before = 0;
  double after = 0;
};

/// What the ranks' ops took. Runs of one file differ in plan, so each has its own Program.
Result<void> add_run(const Context& context, const Store& store, const Learned& run, Probes& all) {
  FORETRAIN_TRY(const Semantics semantics, context.data.semantics(run.plan.job.semantics));
  FORETRAIN_TRY(const std::vector<RunOp> ops, store.run_ops(run.id));
  const Program program = lower(run.plan, semantics);
  std::vector<MeasuredRank> ranks;
  std::vector<int> stages;
  for (const RunOp& op : ops) {
    const auto rank = static_cast<std::size_t>(op.rank);
    if (ranks.size() <= rank) {
      ranks.resize(rank + 1);
      stages.resize(rank + 1);
    }
    const auto number = static_cast<std::size_t>(op.op);
    if (ranks[rank].ops.size() <= number) ranks[rank].ops.resize(number + 1);
    ranks[rank].ops[number] = {op.samples, op.median.value, op.p10.value, op.p90.value, 0};
    stages[rank] = op.stage;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto role = std::find_if(program.roles.begin(), program.roles.end(),
                                   [&](const Role& r) { return r.stage == stages[rank]; });
    if (role != program.roles.end()) add_ops(program, *role, ranks[rank], run.plan.cluster.ranks_per_processor, all.ops);
  }
  all.ranks = std::max(all.ranks, static_cast<int>(ranks.size()));
  return {};
}

double median_step(const std::vector<RunFigure>& figures) {
  std::vector<double> steps;
  for (const RunFigure& figure : figures)
    if (figure.item == "step_time" && !figure.rank) steps.push_back(figure.value);
  return median_of(std::move(steps));
}

/// The runs that were asked for, or all that ended well; of one device.
Result<std::vector<Learned>> runs_of(const Store& store, const CalibrateOptions& options) {
  std::vector<Learned> list;
  FORETRAIN_TRY(const std::vector<RunSummary> summaries, store.runs(kMostRuns));
  const std::set<std::int64_t> wanted(options.of_runs.begin(), options.of_runs.end());
  for (const RunSummary& summary : summaries) {
    if (wanted.empty() ? summary.status != RunStatus::done : wanted.count(summary.id.value) == 0) continue;
    Learned run;
    run.id = summary.id;
    FORETRAIN_TRY(run.plan, store.run_plan(summary.id));
    const DeviceSpec& device = run.plan.cluster.device;
    if (summary.environment.value("backend", "") == "gloo" && device.architecture != "cpu")
      return fail(
          fmt::format("run {}", summary.id.value), "was executed by processors, its plan is for " + device.name,
          "name runs of one device with --run; plans for this machine take cluster cpu-host or what detect writes");
    FORETRAIN_TRY(const auto figures, store.run_figures(summary.id));
    run.measured = median_step(figures);
    if (run.measured > 0) list.push_back(std::move(run));
  }
  if (list.empty())
    return fail(options.runs, "holds no run that was measured to its end", "foretrain db runs lists them");
  std::set<std::string> devices;
  for (const Learned& run : list) devices.insert(run.plan.cluster.device.name);
  if (devices.size() > 1)
    return fail(options.runs, "its runs are of different devices: " + *devices.begin() + ", " + *devices.rbegin(),
                "name those of one device with --run");
  return list;
}

Result<double> predicted(const Context& context, const Plan& plan, const Calibration& calibration) {
  FORETRAIN_TRY(const Semantics semantics, context.data.semantics(plan.job.semantics));
  FORETRAIN_TRY(const Prediction prediction,
                predict(plan, semantics, calibration, Engine::replay, "", context.data.root.string()));
  return prediction.step_time.value;
}

std::string percent(double predicted, double measured) {
  return fmt::format("{:+.1f} %", (predicted / measured - 1) * 100);
}

Json document(const std::vector<Learned>& runs, const Calibration& calibration, const std::string& file) {
  Json json;
  json["file"] = file;
  json["calibration"] = to_json(calibration);
  json["runs"] = Json::array();
  for (const Learned& run : runs)
    json["runs"].push_back({{"run", run.id.value},
                            {"measured_step_time_s", run.measured},
                            {"before_s", run.before},
                            {"after_s", run.after}});
  return json;
}

std::string text_of(const std::vector<Learned>& runs, const std::string& file) {
  std::vector<std::vector<std::string>> cells = {{"run", "measured", "before", "error", "after", "error"}};
  for (const Learned& run : runs)
    cells.push_back({std::to_string(run.id.value), fmt::format("{:.3f} ms", run.measured * 1e3),
                     fmt::format("{:.3f} ms", run.before * 1e3), percent(run.before, run.measured),
                     fmt::format("{:.3f} ms", run.after * 1e3), percent(run.after, run.measured)});
  return text_table(cells) +
         fmt::format("These runs are what it was fitted to: others tell how good it is.\nwritten to {}\n", file);
}

} // namespace

int calibrate_from_runs(const Context& context, const CalibrateOptions& options) {
  const auto store = Store::open(options.runs, OpenMode::read, context.data);
  if (!store) return complain(store.error());
  auto runs = runs_of(*store, options);
  if (!runs) return complain(runs.error());
  const ClusterSpec& cluster = runs->front().plan.cluster;
  const auto before = calibration_of(context, cluster.device);
  if (!before) return complain(before.error());
  Probes all;
  all.source = fmt::format("{} runs of {}", runs->size(), options.runs);
  for (const Learned& run : *runs)
    if (const auto added = add_run(context, *store, run, all); !added) return complain(added.error());
  const auto after = recalibrate(*before, all, cluster);
  if (!after) return complain(after.error());
  for (Learned& run : *runs) {
    const auto old_step = predicted(context, run.plan, *before);
    const auto new_step = predicted(context, run.plan, *after);
    if (!old_step) return complain(old_step.error());
    if (!new_step) return complain(new_step.error());
    run.before = *old_step;
    run.after = *new_step;
  }
  if (context.user_data.empty() && options.out.empty())
    return complain({Error::Kind::input, "is needed where there is no home folder", "--out", ""});
  const fs::path out = options.out.empty() ? context.user_data / "calibrations" / (cluster.device.name + ".json")
                                           : fs::path(options.out);
  std::error_code ignored;
  if (out.has_parent_path()) fs::create_directories(out.parent_path(), ignored);
  if (const auto written = write_text_file(out, to_json(*after).dump(2) + "\n"); !written)
    return complain(written.error());
  if (!options.json) return print_and(text_of(*runs, out.string()), kDone);
  return print_and(document(*runs, *after, out.string()).dump(2) + "\n", kDone);
}

} // namespace foretrain::cli
