#include "core/base/digest.h"
#include "db/connection.h"
#include "db/rows.h"

namespace foretrain {
namespace {

Result<RunStatus> status_from(const std::string& text, const std::string& where) {
  for (const RunStatus status : {RunStatus::running, RunStatus::done, RunStatus::failed, RunStatus::interrupted})
    if (id_of(status) == text) return status;
  return fail(where, "unknown status '" + text + "'");
}

void bind_optional(SQLite::Statement& statement, int index, std::optional<int> value) {
  if (value)
    statement.bind(index, *value);
  else
    statement.bind(index);
}

std::optional<int> optional_int(const SQLite::Column& column) {
  if (column.isNull()) return std::nullopt;
  return column.getInt();
}

constexpr const char* kSelectRun = "SELECT id, digest, model, cluster, launcher, created_at, status, steps, message, "
                                   "folder, environment";

Result<RunSummary> read_run(SQLite::Statement& row, const std::string& path) {
  RunSummary run;
  run.id = RunId{row.getColumn(0).getInt64()};
  const std::string where = row_name(path, "run", run.id.value);
  run.digest = row.getColumn(1).getString();
  run.model = row.getColumn(2).getString();
  run.cluster = row.getColumn(3).getString();
  run.launcher = row.getColumn(4).getString();
  run.created_at = row.getColumn(5).getString();
  FORETRAIN_TRY(run.status, status_from(row.getColumn(6).getString(), where));
  run.steps = row.getColumn(7).getInt();
  run.message = row.getColumn(8).getString();
  run.folder = row.getColumn(9).getString();
  FORETRAIN_TRY(run.environment, parse_json(row.getColumn(10).getString(), where));
  return run;
}

} // namespace

std::string_view id_of(RunStatus status) {
  switch (status) {
  case RunStatus::running:
    return "running";
  case RunStatus::done:
    return "done";
  case RunStatus::failed:
    return "failed";
  case RunStatus::interrupted:
    return "interrupted";
  }
  return "";
}

Result<RunId> Store::begin_run(const Plan& plan, std::span<const StoredPrediction> predictions,
                               const std::string& launcher, const std::string& program_version) {
  return in_transaction(*connection_, [&]() -> Result<RunId> {
    const std::string text = to_json(plan).dump();
    SQLite::Statement insert(connection_->database,
                             "INSERT INTO run(digest, plan, launcher, program_version) VALUES(?, ?, ?, ?)");
    insert.bind(1, digest(text));
    insert.bind(2, text);
    insert.bind(3, launcher);
    insert.bind(4, program_version);
    insert.exec();
    const RunId run{connection_->database.getLastInsertRowid()};
    SQLite::Statement predict(connection_->database, "INSERT INTO run_prediction(run, engine, semantics, calibration, "
                                                     "document) VALUES(?, ?, ?, ?, ?)");
    for (const StoredPrediction& stored : predictions) {
      predict.reset();
      predict.bind(1, run.value);
      predict.bind(2, std::string(id_of(stored.key.engine)));
      predict.bind(3, stored.key.semantics);
      predict.bind(4, stored.key.calibration);
      predict.bind(5, prediction_text(stored.prediction));
      predict.exec();
    }
    return run;
  });
}

Result<void> Store::describe_run(RunId run, const std::string& folder, const Json& environment) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement update(connection_->database, "UPDATE run SET folder = ?, environment = ? WHERE id = ?");
    update.bind(1, folder);
    update.bind(2, environment.dump());
    update.bind(3, run.value);
    if (update.exec() == 0) return fail(connection_->path, "no run " + std::to_string(run.value));
    return {};
  });
}

Result<void> Store::add_run_ops(RunId run, std::span<const RunOp> ops) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement insert(connection_->database,
                             "INSERT INTO run_op(run, rank, op, axis, stage, samples, median_s, "
                             "p10_s, p90_s, name, predicted_s) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    for (const RunOp& op : ops) {
      insert.reset();
      insert.bind(1, run.value);
      insert.bind(2, op.rank);
      insert.bind(3, op.op);
      insert.bind(4, op.axis);
      insert.bind(5, op.stage);
      insert.bind(6, op.samples);
      insert.bind(7, op.median.value);
      insert.bind(8, op.p10.value);
      insert.bind(9, op.p90.value);
      insert.bind(10, op.name);
      insert.bind(11, op.predicted.value);
      insert.exec();
    }
    return {};
  });
}

Result<void> Store::add_run_figures(RunId run, std::span<const RunFigure> figures) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement insert(connection_->database,
                             "INSERT INTO measurement(run, item, rank, step, value, unit) VALUES(?, ?, ?, ?, ?, ?)");
    for (const RunFigure& figure : figures) {
      insert.reset();
      insert.bind(1, run.value);
      insert.bind(2, figure.item);
      bind_optional(insert, 3, figure.rank);
      bind_optional(insert, 4, figure.step);
      insert.bind(5, figure.value);
      insert.bind(6, figure.unit);
      insert.exec();
    }
    return {};
  });
}

Result<void> Store::finish_run(RunId run, RunStatus status, int steps, const std::string& message) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement update(connection_->database, "UPDATE run SET status = ?, steps = ?, message = ? WHERE id = ?");
    update.bind(1, std::string(id_of(status)));
    update.bind(2, steps);
    update.bind(3, message);
    update.bind(4, run.value);
    if (update.exec() == 0) return fail(connection_->path, "no run " + std::to_string(run.value));
    return {};
  });
}

Result<void> Store::remove_run(RunId run) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement remove(connection_->database, "DELETE FROM run WHERE id = ?");
    remove.bind(1, run.value);
    if (remove.exec() == 0) return fail(connection_->path, "no run " + std::to_string(run.value));
    return {};
  });
}

Result<std::vector<RunSummary>> Store::runs(int limit, int offset) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<RunSummary>> {
    SQLite::Statement select(connection_->database,
                             std::string(kSelectRun) + " FROM run ORDER BY id DESC LIMIT ? OFFSET ?");
    select.bind(1, limit);
    select.bind(2, offset);
    std::vector<RunSummary> result;
    while (select.executeStep()) {
      FORETRAIN_TRY(RunSummary run, read_run(select, connection_->path));
      result.push_back(std::move(run));
    }
    return result;
  });
}

Result<RunSummary> Store::run(RunId run) const {
  return guarded(connection_->path, [&]() -> Result<RunSummary> {
    SQLite::Statement select(connection_->database, std::string(kSelectRun) + " FROM run WHERE id = ?");
    select.bind(1, run.value);
    if (!select.executeStep()) return fail(connection_->path, "no run " + std::to_string(run.value));
    return read_run(select, connection_->path);
  });
}

Result<Plan> Store::run_plan(RunId run) const {
  return guarded(connection_->path, [&]() -> Result<Plan> {
    SQLite::Statement select(connection_->database, "SELECT plan FROM run WHERE id = ?");
    select.bind(1, run.value);
    if (!select.executeStep()) return fail(connection_->path, "no run " + std::to_string(run.value));
    const std::string where = row_name(connection_->path, "run", run.value);
    FORETRAIN_TRY(const Json json, parse_json(select.getColumn(0).getString(), where));
    return plan_from(json, where, connection_->data);
  });
}

Result<std::vector<StoredPrediction>> Store::run_predictions(RunId run) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<StoredPrediction>> {
    SQLite::Statement select(connection_->database, "SELECT engine, semantics, calibration, document FROM "
                                                    "run_prediction WHERE run = ? ORDER BY semantics, engine");
    select.bind(1, run.value);
    std::vector<StoredPrediction> result;
    while (select.executeStep()) {
      FORETRAIN_TRY(StoredPrediction stored, read_prediction(select, 0, row_name(connection_->path, "run", run.value)));
      result.push_back(std::move(stored));
    }
    return result;
  });
}

Result<std::vector<RunOp>> Store::run_ops(RunId run) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<RunOp>> {
    SQLite::Statement select(connection_->database,
                             "SELECT rank, op, axis, stage, samples, median_s, p10_s, p90_s, name, "
                             "predicted_s FROM run_op WHERE run = ? ORDER BY rank, op");
    select.bind(1, run.value);
    std::vector<RunOp> result;
    while (select.executeStep()) {
      RunOp op;
      op.rank = select.getColumn(0).getInt();
      op.op = select.getColumn(1).getInt();
      op.axis = select.getColumn(2).getString();
      op.stage = select.getColumn(3).getInt();
      op.samples = select.getColumn(4).getInt();
      op.median = Seconds(select.getColumn(5).getDouble());
      op.p10 = Seconds(select.getColumn(6).getDouble());
      op.p90 = Seconds(select.getColumn(7).getDouble());
      op.name = select.getColumn(8).getString();
      op.predicted = Seconds(select.getColumn(9).getDouble());
      result.push_back(std::move(op));
    }
    return result;
  });
}

Result<std::vector<RunFigure>> Store::run_figures(RunId run) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<RunFigure>> {
    SQLite::Statement select(connection_->database,
                             "SELECT item, rank, step, value, unit FROM measurement WHERE run = ? ORDER BY id");
    select.bind(1, run.value);
    std::vector<RunFigure> result;
    while (select.executeStep()) {
      RunFigure figure;
      figure.item = select.getColumn(0).getString();
      figure.rank = optional_int(select.getColumn(1));
      figure.step = optional_int(select.getColumn(2));
      figure.value = select.getColumn(3).getDouble();
      figure.unit = select.getColumn(4).getString();
      result.push_back(std::move(figure));
    }
    return result;
  });
}

} // namespace foretrain
