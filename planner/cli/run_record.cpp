#include "planner/cli/run_record.h"

#include <cmath>

#include "core/spec/names.h"
#include "db/store.h"
#include "planner/cli/context.h"

namespace foretrain::cli {
namespace {

std::vector<RunOp> ops_of(const ExecutedPlan& plan, const MeasuredRun& run) {
  std::vector<RunOp> list;
  for (std::size_t rank = 0; rank < run.ranks.size() && rank < plan.stage.size(); ++rank) {
    const int stage = plan.stage[rank];
    const std::vector<PlannedOp>& planned = plan.ops[static_cast<std::size_t>(stage)];
    const std::vector<OpTime>& measured = run.ranks[rank].ops;
    if (measured.size() != planned.size()) continue; // the rank was ended before it could say
    for (std::size_t i = 0; i < planned.size(); ++i) {
      RunOp op;
      op.rank = static_cast<int>(rank);
      op.op = static_cast<int>(i);
      op.axis = std::string(id_of(planned[i].part));
      op.stage = stage;
      op.samples = measured[i].samples;
      op.median = Seconds(measured[i].median);
      op.p10 = Seconds(measured[i].p10);
      op.p90 = Seconds(measured[i].p90);
      op.name = kind_of(planned[i].place);
      op.predicted = Seconds(planned[i].seconds);
      list.push_back(std::move(op));
    }
  }
  return list;
}

/// Peaks by slot, under the names that the plan gives them.
void add_peaks(const ExecutedPlan& plan, const MeasuredRun& run, std::vector<RunFigure>& list) {
  for (std::size_t rank = 0; rank < run.ranks.size() && rank < plan.stage.size(); ++rank) {
    const Role& role = plan.program->roles[static_cast<std::size_t>(plan.stage[rank])];
    const std::vector<std::int64_t>& measured = run.ranks[rank].peaks;
    if (measured.size() != role.instructions.size()) continue; // not counted
    for (const PlannedPeak& peak : planned_peaks(*plan.program, role))
      list.push_back({"peak/" + peak.name, static_cast<int>(rank), std::nullopt,
                      static_cast<double>(measured[static_cast<std::size_t>(peak.instruction)]), "B"});
  }
}

std::vector<RunFigure> figures_of(const MeasuredRun& run, double tokens) {
  std::vector<RunFigure> list;
  for (std::size_t step = 0; step < run.step_seconds.size(); ++step) {
    const int number = static_cast<int>(step);
    const char* item = number < run.warmup ? "warmup_step_time" : "step_time";
    list.push_back({item, std::nullopt, number, run.step_seconds[step], "s"});
    if (std::isfinite(run.loss[step])) list.push_back({"loss", std::nullopt, number, run.loss[step], ""});
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
      list.push_back({item, static_cast<int>(rank), number, run.ranks[rank].step_seconds[step], "s"});
  }
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const MeasuredRank& measured = run.ranks[rank];
    const auto add = [&](const char* item, std::int64_t bytes) {
      if (bytes >= 0) list.push_back({item, static_cast<int>(rank), std::nullopt, static_cast<double>(bytes), "B"});
    };
    add("peak_allocated", measured.peak_bytes);
    add("host/optimizer", measured.host_peak_bytes);
    add("host/checkpoint_copy", measured.copied_bytes);
  }
  if (const double step = run.step_time(); step > 0)
    list.push_back({"tokens_per_s", std::nullopt, std::nullopt, tokens / step, "1/s"});
  return list;
}

RunStatus status_of(RunEnd end) {
  switch (end) {
  case RunEnd::done:
    return RunStatus::done;
  case RunEnd::failed:
    return RunStatus::failed;
  case RunEnd::interrupted:
    return RunStatus::interrupted;
  }
  return RunStatus::failed;
}

} // namespace

struct RunRecord::Data {
  Store store;
  RunId id;
};

RunRecord::RunRecord(std::unique_ptr<Data> data) : data_(std::move(data)) {}
RunRecord::~RunRecord() = default;
RunRecord::RunRecord(RunRecord&&) noexcept = default;
RunRecord& RunRecord::operator=(RunRecord&&) noexcept = default;

Result<RunRecord> RunRecord::begin(const std::string& file, const DataFolder& data, const ExecutedPlan& plan,
                                   const std::string& launcher) {
  FORETRAIN_TRY(Store store, Store::open(file, OpenMode::write, data));
  const LoadedPlan& loaded = plan.loaded;
  FORETRAIN_TRY(const std::string calibration,
                store.keep_calibration(loaded.plan.cluster.device.name, to_json(loaded.calibration).dump()));
  std::vector<StoredPrediction> predictions = {
      {{plan.prediction.engine, loaded.plan.job.semantics, calibration}, plan.prediction}};
  if (plan.asked) predictions.push_back({{plan.asked->engine, plan.asked_semantics, calibration}, *plan.asked});
  FORETRAIN_TRY(const RunId id, store.begin_run(loaded.plan, predictions, launcher, std::string(version())));
  return RunRecord(std::unique_ptr<Data>(new Data{std::move(store), id}));
}

std::int64_t RunRecord::id() const {
  return data_->id.value;
}

Result<void> RunRecord::keep(const ExecutedPlan& plan, const MeasuredRun& run, const std::filesystem::path& folder,
                             RunEnd end, const std::string& message) {
  Store& store = data_->store;
  const JobSpec& job = plan.loaded.plan.job;
  const double tokens = static_cast<double>(job.global_batch) * job.sequence_length;
  if (const auto done = store.describe_run(data_->id, folder.string(), run.environment); !done) return done;
  if (const auto done = store.add_run_ops(data_->id, ops_of(plan, run)); !done) return done;
  std::vector<RunFigure> figures = figures_of(run, tokens);
  if (plan.program) add_peaks(plan, run, figures);
  if (const auto done = store.add_run_figures(data_->id, figures); !done) return done;
  return store.finish_run(data_->id, status_of(end), static_cast<int>(run.step_seconds.size()), message);
}

} // namespace foretrain::cli
