#include <string_view>

#include "core/spec/names.h"
#include "db/connection.h"
#include "db/layout_code.h"
#include "db/rows.h"

namespace foretrain {
namespace {

constexpr const char* kSummaryColumns =
    "SELECT id, digest, model, cluster, sequence_length, global_batch, semantics, created_at, program_version, "
    "complete, "
    "elapsed_s, enumerated, legal, evaluated, fits, (SELECT count(*) FROM candidate WHERE candidate.study = study.id) "
    "FROM study ";

// The candidate with its most detailed prediction (the newest of those).
constexpr const char* kCandidateColumns =
    "SELECT candidate.id, candidate.study, candidate.layout, candidate.pareto, prediction.engine, "
    "prediction.semantics, "
    "prediction.calibration, prediction.document FROM candidate JOIN prediction ON prediction.id = (SELECT p.id FROM "
    "prediction AS p WHERE p.candidate = candidate.id ORDER BY p.detail DESC, p.id DESC LIMIT 1) ";

/// The same without the documents of what only the search has seen, and without the layouts' JSON where they have a code.
constexpr const char* kRowColumns =
    "SELECT candidate.id, candidate.code, CASE WHEN candidate.code IS NULL THEN candidate.layout END, candidate.pareto, "
    "prediction.engine, prediction.evidence, prediction.step_time_s, prediction.peak_device_bytes, "
    "prediction.fullest_stage, CASE WHEN prediction.engine <> 'slots' THEN prediction.document END "
    "FROM candidate JOIN prediction ON prediction.id = (SELECT p.id FROM prediction AS p WHERE p.candidate = candidate.id "
    "ORDER BY p.detail DESC, p.id DESC LIMIT 1) ";

StudySummary read_summary(SQLite::Statement& row) {
  StudySummary summary;
  summary.id = StudyId{row.getColumn(0).getInt64()};
  summary.digest = row.getColumn(1).getString();
  summary.model = row.getColumn(2).getString();
  summary.cluster = row.getColumn(3).getString();
  summary.sequence_length = row.getColumn(4).getInt();
  summary.global_batch = row.getColumn(5).getInt64();
  summary.semantics = row.getColumn(6).getString();
  summary.created_at = row.getColumn(7).getString();
  summary.program_version = row.getColumn(8).getString();
  summary.complete = row.getColumn(9).getInt() != 0;
  if (!row.getColumn(10).isNull()) summary.elapsed = Seconds(row.getColumn(10).getDouble());
  summary.counts = StudyCounts{row.getColumn(11).getInt64(), row.getColumn(12).getInt64(), row.getColumn(13).getInt64(),
                               row.getColumn(14).getInt64()};
  summary.candidates = row.getColumn(15).getInt64();
  return summary;
}

/// What to sort by; the cluster is the same for all candidates of a study, so headroom is the smallest peak and cost
/// the highest throughput.
const char* order_of(Objective objective) {
  switch (objective) {
  case Objective::step_time:
    return "prediction.step_time_s";
  case Objective::throughput:
  case Objective::cost:
    return "prediction.tokens_per_s_per_gpu DESC";
  case Objective::memory_headroom:
    return "prediction.peak_device_bytes";
  }
  return "candidate.id";
}

std::string rank_order(Objective objective) {
  return std::string(" ORDER BY CASE prediction.verdict WHEN 'fits' THEN 0 WHEN 'oom' THEN 1 ELSE 2 END, ") +
         order_of(objective) + ", candidate.id";
}

/// As ids name it; a word of a newer program counts as the weakest.
Evidence evidence_of(std::string_view text) {
  for (const Evidence evidence : {Evidence::measured, Evidence::interpolated, Evidence::fitted})
    if (id_of(evidence) == text) return evidence;
  return Evidence::datasheet;
}

Result<Layout> read_layout(SQLite::Statement& row, int code, int json, const std::string& where) {
  const SQLite::Column column = row.getColumn(code);
  if (!column.isNull()) {
    const std::string_view bytes(static_cast<const char*>(column.getBlob()), static_cast<std::size_t>(column.getBytes()));
    if (auto layout = layout_from_code(bytes)) return std::move(*layout);
    return fail(where, "the code of its layout does not read", "was the file written to by another program?");
  }
  FORETRAIN_TRY(const Json document, parse_json(row.getColumn(json).getString(), where));
  return layout_from(document, where);
}

Result<RankedRow> read_row(SQLite::Statement& row, const std::string& path) {
  RankedRow result;
  result.id = CandidateId{row.getColumn(0).getInt64()};
  const std::string where = row_name(path, "candidate", result.id.value);
  FORETRAIN_TRY(result.layout, read_layout(row, 1, 2, where));
  result.pareto = row.getColumn(3).getInt() != 0;
  FORETRAIN_TRY(result.engine, engine_from(row.getColumn(4).getText(), where));
  result.evidence = evidence_of(row.getColumn(5).getText());
  result.step_time = Seconds(row.getColumn(6).getDouble());
  result.device = Bytes(row.getColumn(7).getInt64());
  result.fullest_stage = row.getColumn(8).getInt();
  if (row.getColumn(9).isNull()) return result;
  FORETRAIN_TRY(const Json document, parse_json(row.getColumn(9).getString(), where));
  FORETRAIN_TRY(Prediction prediction, prediction_from(document, where));
  result.prediction = std::make_shared<const Prediction>(std::move(prediction));
  return result;
}

Result<StoredCandidate> read_candidate(SQLite::Statement& row, const Study& study, const std::string& path) {
  StoredCandidate candidate;
  candidate.id = CandidateId{row.getColumn(0).getInt64()};
  candidate.study = StudyId{row.getColumn(1).getInt64()};
  candidate.pareto = row.getColumn(3).getInt() != 0;
  const std::string where = row_name(path, "candidate", candidate.id.value);
  FORETRAIN_TRY(const Json layout, parse_json(row.getColumn(2).getString(), where));
  FORETRAIN_TRY(Layout parsed, layout_from(layout, where));
  candidate.plan = Plan{study.model, study.cluster, study.job, std::move(parsed)};
  FORETRAIN_TRY(candidate.best, read_prediction(row, 4, where));
  return candidate;
}

Result<std::vector<StoredCandidate>> read_candidates(SQLite::Statement& rows, const Study& study,
                                                     const std::string& path) {
  std::vector<StoredCandidate> candidates;
  while (rows.executeStep()) {
    FORETRAIN_TRY(StoredCandidate candidate, read_candidate(rows, study, path));
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

} // namespace

Result<std::vector<StudySummary>> Store::studies(int limit, int offset) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<StudySummary>> {
    SQLite::Statement select(connection_->database, std::string(kSummaryColumns) + "ORDER BY id DESC LIMIT ? OFFSET ?");
    select.bind(1, limit);
    select.bind(2, offset);
    std::vector<StudySummary> result;
    while (select.executeStep()) result.push_back(read_summary(select));
    return result;
  });
}

Result<StudySummary> Store::summary(StudyId id) const {
  return guarded(connection_->path, [&]() -> Result<StudySummary> {
    SQLite::Statement select(connection_->database, std::string(kSummaryColumns) + "WHERE id = ?");
    select.bind(1, id.value);
    if (!select.executeStep()) return fail(connection_->path, "no study " + std::to_string(id.value));
    return read_summary(select);
  });
}

Result<Study> Store::study(StudyId id) const {
  return guarded(connection_->path, [&]() -> Result<Study> {
    SQLite::Statement select(connection_->database, "SELECT spec FROM study WHERE id = ?");
    select.bind(1, id.value);
    if (!select.executeStep()) return fail(connection_->path, "no study " + std::to_string(id.value));
    const std::string where = row_name(connection_->path, "study", id.value);
    FORETRAIN_TRY(const Json json, parse_json(select.getColumn(0).getString(), where));
    return study_from(json, where, connection_->data);
  });
}

Result<std::vector<StoredCandidate>> Store::ranked(StudyId id, Objective objective, int limit, int offset) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<StoredCandidate>> {
    FORETRAIN_TRY(const Study parent, study(id));
    SQLite::Statement select(connection_->database,
                             std::string(kCandidateColumns) + "WHERE candidate.study = ?" + rank_order(objective) +
                                 " LIMIT ? OFFSET ?");
    select.bind(1, id.value);
    select.bind(2, limit);
    select.bind(3, offset);
    return read_candidates(select, parent, connection_->path);
  });
}

Result<void> Store::each_ranked(StudyId id, Objective objective, const std::function<bool(RankedRow)>& take) const {
  return guarded(connection_->path, [&]() -> Result<void> {
    SQLite::Statement select(connection_->database, std::string(kRowColumns) + "WHERE candidate.study = ?" + rank_order(objective));
    select.bind(1, id.value);
    while (select.executeStep()) {
      FORETRAIN_TRY(RankedRow row, read_row(select, connection_->path));
      if (!take(std::move(row))) break;
    }
    return {};
  });
}

Result<std::vector<StoredCandidate>> Store::pareto(StudyId id) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<StoredCandidate>> {
    FORETRAIN_TRY(const Study parent, study(id));
    SQLite::Statement select(
        connection_->database,
        std::string(kCandidateColumns) +
            "WHERE candidate.study = ? AND pareto <> 0 ORDER BY prediction.step_time_s, candidate.id");
    select.bind(1, id.value);
    return read_candidates(select, parent, connection_->path);
  });
}

Result<StoredCandidate> Store::candidate(CandidateId id) const {
  return guarded(connection_->path, [&]() -> Result<StoredCandidate> {
    SQLite::Statement select(connection_->database, std::string(kCandidateColumns) + "WHERE candidate.id = ?");
    select.bind(1, id.value);
    if (!select.executeStep()) return fail(connection_->path, "no candidate " + std::to_string(id.value));
    FORETRAIN_TRY(const Study parent, study(StudyId{select.getColumn(1).getInt64()}));
    return read_candidate(select, parent, connection_->path);
  });
}

Result<std::vector<StoredPrediction>> Store::predictions(CandidateId id) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<StoredPrediction>> {
    SQLite::Statement select(connection_->database, "SELECT engine, semantics, calibration, document FROM prediction "
                                                    "WHERE candidate = ? ORDER BY detail DESC, id DESC");
    select.bind(1, id.value);
    std::vector<StoredPrediction> result;
    while (select.executeStep()) {
      FORETRAIN_TRY(StoredPrediction stored,
                    read_prediction(select, 0, row_name(connection_->path, "candidate", id.value)));
      result.push_back(std::move(stored));
    }
    return result;
  });
}

Result<std::vector<StoredNearMiss>> Store::near_misses(StudyId id) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<StoredNearMiss>> {
    SQLite::Statement select(connection_->database,
                             "SELECT layout, rejection FROM near_miss WHERE study = ? ORDER BY id");
    select.bind(1, id.value);
    const std::string where = row_name(connection_->path, "study", id.value) + ", near miss";
    std::vector<StoredNearMiss> result;
    while (select.executeStep()) {
      FORETRAIN_TRY(const Json layout, parse_json(select.getColumn(0).getString(), where));
      FORETRAIN_TRY(const Json rejection, parse_json(select.getColumn(1).getString(), where));
      StoredNearMiss miss;
      FORETRAIN_TRY(miss.layout, layout_from(layout, where));
      FORETRAIN_TRY(miss.rejection, rejection_from(rejection, where));
      result.push_back(std::move(miss));
    }
    return result;
  });
}

Result<std::map<std::string, std::int64_t>> Store::rejection_counts(StudyId id) const {
  return guarded(connection_->path, [&]() -> Result<std::map<std::string, std::int64_t>> {
    SQLite::Statement select(connection_->database, "SELECT rule, count FROM rejection_count WHERE study = ?");
    select.bind(1, id.value);
    std::map<std::string, std::int64_t> result;
    while (select.executeStep()) result[select.getColumn(0).getString()] = select.getColumn(1).getInt64();
    return result;
  });
}

} // namespace foretrain
