#include "planner/compare.h"

#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/program/host.h"
#include "core/spec/names.h"
#include "db/store.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/executed_plan.h"
#include "planner/cli/table.h"
#include "planner/compare_trace.h"

namespace foretrain::cli {
namespace {

struct StoredRun {
  RunSummary summary;
  ExecutedPlan plan;
  Prediction prediction; ///< the one that was made before the run
  RunFacts facts;
};

constexpr std::string_view kPeak = "peak/";                        ///< of a slot, before its name
using Peaks = std::map<std::pair<int, std::string>, std::int64_t>; ///< by rank and slot

constexpr std::string_view kHost = "host/"; ///< memory of the host, before what it is for

/// `measured`: gets the peaks of slots.
void add_figures(const std::vector<RunFigure>& figures, RunFacts& facts, Peaks& measured) {
  for (const RunFigure& figure : figures) {
    const auto rank = static_cast<std::size_t>(figure.rank.value_or(0));
    if (figure.rank && rank >= facts.stage.size()) continue;
    if (figure.item == "step_time" && figure.rank) facts.rank_seconds[rank].push_back(figure.value);
    if (figure.item == "step_time" && !figure.rank) facts.step_seconds.push_back(figure.value);
    if (figure.item.starts_with(kPeak) && figure.rank)
      measured[{static_cast<int>(rank), figure.item.substr(kPeak.size())}] = static_cast<std::int64_t>(figure.value);
    if (figure.item.starts_with(kHost) && figure.rank)
      facts.host.push_back({figure.item, static_cast<int>(rank), "B", 0, figure.value});
    if (figure.item == "peak_allocated" && figure.rank)
      facts.peak_bytes[rank] = static_cast<std::int64_t>(figure.value);
  }
}

/// In the order of issue.
void add_peaks(const ExecutedPlan& plan, const Peaks& measured, RunFacts& facts) {
  if (!plan.program || measured.empty()) return;
  for (std::size_t rank = 0; rank < plan.stage.size(); ++rank) {
    const Role& role = plan.program->roles[static_cast<std::size_t>(plan.stage[rank])];
    for (PlannedPeak& peak : planned_peaks(*plan.program, role)) {
      const auto found = measured.find({static_cast<int>(rank), peak.name});
      if (found != measured.end())
        facts.peaks.push_back({static_cast<int>(rank), std::move(peak.name), peak.bytes, found->second});
    }
  }
}

void add_host(const ExecutedPlan& plan, RunFacts& facts) {
  if (!plan.program || facts.host.empty()) return;
  const HostMemory host = host_memory(plan.loaded.plan, plan.loaded.semantics, *plan.program);
  for (Comparison& row : facts.host) {
    const auto rank = static_cast<std::size_t>(*row.rank);
    const std::vector<Bytes>& promised = row.item == "host/optimizer" ? host.optimizer : host.checkpoint_copy;
    row.predicted = static_cast<double>(promised[rank].value);
  }
}

/// The prediction of the run, and its Program and durations again from the calibration that it used.
Result<StoredRun> stored_run(const Context& context, const Store& store, RunId id) {
  StoredRun run;
  FORETRAIN_TRY(run.summary, store.run(id));
  LoadedPlan loaded;
  FORETRAIN_TRY(loaded.plan, store.run_plan(id));
  FORETRAIN_TRY(loaded.semantics, context.data.semantics(loaded.plan.job.semantics));
  FORETRAIN_TRY(const auto predictions, store.run_predictions(id));
  for (const StoredPrediction& stored : predictions) {
    if (stored.key.semantics != loaded.plan.job.semantics) continue;
    run.prediction = stored.prediction;
    FORETRAIN_TRY(const std::string text, store.calibration(stored.key.calibration));
    FORETRAIN_TRY(const Json json, parse_json(text, "calibration " + stored.key.calibration));
    FORETRAIN_TRY(loaded.calibration, calibration_from(json, "calibration " + stored.key.calibration));
  }
  FORETRAIN_TRY(run.plan, executed_plan(context, std::move(loaded)));
  RunFacts& facts = run.facts;
  facts.stage = run.plan.stage;
  facts.rank_seconds.resize(facts.stage.size());
  facts.peak_bytes.resize(facts.stage.size());
  FORETRAIN_TRY(const auto figures, store.run_figures(id));
  Peaks peaks;
  add_figures(figures, facts, peaks);
  add_peaks(run.plan, peaks, facts);
  add_host(run.plan, facts);
  FORETRAIN_TRY(const auto ops, store.run_ops(id));
  for (const RunOp& op : ops) facts.ops.push_back({op.rank, op.name, op.axis, op.predicted.value, op.median.value});
  return run;
}

Json row_json(const Comparison& row) {
  const auto error = row.error_percent();
  return {{"item", row.item},         {"rank", row.rank ? Json(*row.rank) : Json()},    {"predicted", row.predicted},
          {"measured", row.measured}, {"error_percent", error ? Json(*error) : Json()}, {"unit", row.unit}};
}

std::string figure_text(double value, const std::string& unit) {
  if (unit == "B") return fmt::format("{:.2f} MiB", value / 1048576);
  return fmt::format("{:.3f} ms", value * 1e3);
}

std::string table_of(const std::vector<Comparison>& rows, bool with_ops) {
  std::vector<std::vector<std::string>> cells = {{"item", "rank", "predicted", "measured", "error"}};
  for (const Comparison& row : rows) {
    if (!with_ops && (row.item.starts_with("op/") || row.item.starts_with(kPeak))) continue;
    const auto error = row.error_percent();
    cells.push_back({row.item, row.rank ? std::to_string(*row.rank) : "", figure_text(row.predicted, row.unit),
                     figure_text(row.measured, row.unit), error ? fmt::format("{:+.1f} %", *error) : ""});
  }
  return text_table(cells);
}

/// Warnings about what the figures do not say.
std::string remarks_of(const StoredRun& run) {
  std::string text;
  if (run.summary.status != RunStatus::done)
    text += fmt::format("the run {}: {}\n", id_of(run.summary.status), run.summary.message);
  if (run.prediction.evidence == Evidence::datasheet)
    text += "the times rest on a data sheet: foretrain calibrate measures this machine\n";
  return text;
}

Result<void> write_trace(const StoredRun& run, const Simulation& simulation, const std::string& file) {
  const std::filesystem::path records = std::filesystem::path(run.summary.folder) / "run.json";
  FORETRAIN_TRY(const MeasuredRun measured, read_run(records));
  FORETRAIN_TRY(const std::string trace, compared_trace(simulation, measured, run.plan.ops, run.plan.stage));
  return write_text_file(file, trace);
}

} // namespace

int run_compare(const Context& context, const CompareOptions& options) {
  const auto store = Store::open(options.database, OpenMode::read, context.data);
  if (!store) return complain(store.error());
  const auto run = stored_run(context, *store, RunId{options.run});
  if (!run) return complain(run.error());
  const auto simulation = recorded_replay(run->plan);
  if (!simulation) return complain(simulation.error());
  const std::vector<Comparison> rows = compare(run->facts, run->prediction, &*simulation);
  if (!options.trace.empty())
    if (const auto written = write_trace(*run, *simulation, options.trace); !written) return complain(written.error());
  if (!options.json)
    return print_and(with_bold_head(table_of(rows, options.ops), context.color) + remarks_of(*run), kDone);
  Json json;
  json["run"] = options.run;
  json["status"] = std::string(id_of(run->summary.status));
  json["evidence"] = std::string(id_of(run->prediction.evidence));
  json["rows"] = Json::array();
  for (const Comparison& row : rows) json["rows"].push_back(row_json(row));
  json["environment"] = run->summary.environment;
  return print_and(json.dump(2) + "\n", kDone);
}

} // namespace foretrain::cli
