#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

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

// What a list shows, read in the order in which it lies in the file: looking each row up by its key costs several times
// as much, and so does sorting where the rows are. `+study` keeps SQLite from going by the index of layouts.
constexpr const char* kListedCandidates =
    "SELECT id, code, CASE WHEN code IS NULL THEN layout END, pareto FROM candidate WHERE +study = ?1 ORDER BY id";
constexpr const char* kListedPredictions =
    "SELECT candidate, detail, id, engine, evidence, verdict, step_time_s, tokens_per_s_per_gpu, peak_device_bytes, "
    "fullest_stage FROM prediction WHERE +candidate BETWEEN ?1 AND ?2";

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
    const std::string_view bytes(static_cast<const char*>(column.getBlob()),
                                 static_cast<std::size_t>(column.getBytes()));
    if (auto layout = layout_from_code(bytes)) return std::move(*layout);
    return fail(where, "the code of its layout does not read", "was the file written to by another program?");
  }
  FORETRAIN_TRY(const Json document, parse_json(row.getColumn(json).getString(), where));
  return layout_from(document, where);
}

/// A row of the list on its way, with what it is sorted by.
struct Listed {
  RankedRow row;
  int detail = -1; ///< of the prediction; -1: none yet
  std::int64_t prediction = 0;
  int verdict = 2; ///< those that fit first
  double value = 0;
};

Result<std::vector<Listed>> listed_candidates(SQLite::Database& database, StudyId study, const std::string& path) {
  std::vector<Listed> list;
  SQLite::Statement select(database, kListedCandidates);
  select.bind(1, study.value);
  while (select.executeStep()) {
    Listed entry;
    entry.row.id = CandidateId{select.getColumn(0).getInt64()};
    FORETRAIN_TRY(entry.row.layout, read_layout(select, 1, 2, row_name(path, "candidate", entry.row.id.value)));
    entry.row.pareto = select.getColumn(3).getInt() != 0;
    list.push_back(std::move(entry));
  }
  return list;
}

/// What order_of sorts by, the smallest first; an unknown time as SQLite has it.
double sort_value(SQLite::Statement& row, Objective objective) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  switch (objective) {
  case Objective::step_time:
    return row.getColumn(6).isNull() ? -kUnknown : row.getColumn(6).getDouble();
  case Objective::throughput:
  case Objective::cost:
    return row.getColumn(7).isNull() ? kUnknown : -row.getColumn(7).getDouble();
  case Objective::memory_headroom:
    return row.getColumn(8).getDouble();
  }
  return 0;
}

/// Puts the most detailed prediction (the newest of those) to each.
Result<void> add_predictions(SQLite::Database& database, Objective objective, const std::string& path,
                             std::vector<Listed>& list) {
  if (list.empty()) return {};
  SQLite::Statement select(database, kListedPredictions);
  select.bind(1, list.front().row.id.value);
  select.bind(2, list.back().row.id.value);
  while (select.executeStep()) {
    const std::int64_t candidate = select.getColumn(0).getInt64();
    const auto at =
        std::partition_point(list.begin(), list.end(), [&](const Listed& l) { return l.row.id.value < candidate; });
    if (at == list.end() || at->row.id.value != candidate) continue;
    const int detail = select.getColumn(1).getInt();
    const std::int64_t id = select.getColumn(2).getInt64();
    if (detail < at->detail || (detail == at->detail && id < at->prediction)) continue;
    at->detail = detail;
    at->prediction = id;
    FORETRAIN_TRY(at->row.engine, engine_from(select.getColumn(3).getText(), row_name(path, "candidate", candidate)));
    at->row.evidence = evidence_of(select.getColumn(4).getText());
    const std::string_view verdict = select.getColumn(5).getText();
    at->verdict = verdict == id_of(Verdict::fits) ? 0 : verdict == id_of(Verdict::oom) ? 1 : 2;
    at->row.step_time = Seconds(select.getColumn(6).getDouble());
    at->row.device = Bytes(select.getColumn(8).getInt64());
    at->row.fullest_stage = select.getColumn(9).getInt();
    at->value = sort_value(select, objective);
  }
  return {};
}

Result<std::shared_ptr<const Prediction>> read_document(SQLite::Database& database, std::int64_t id,
                                                        const std::string& where) {
  SQLite::Statement select(database, "SELECT document FROM prediction WHERE id = ?");
  select.bind(1, id);
  if (!select.executeStep()) return fail(where, "its prediction is gone");
  FORETRAIN_TRY(const Json document, parse_json(select.getColumn(0).getString(), where));
  FORETRAIN_TRY(Prediction prediction, prediction_from(document, where));
  return std::make_shared<const Prediction>(std::move(prediction));
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

namespace {

tl::unexpected<Error> no_study(const std::string& path, StudyId id) {
  return fail(path, "no study " + std::to_string(id.value), "foretrain db list " + path + " names them");
}

} // namespace

Result<StudySummary> Store::summary(StudyId id) const {
  return guarded(connection_->path, [&]() -> Result<StudySummary> {
    SQLite::Statement select(connection_->database, std::string(kSummaryColumns) + "WHERE id = ?");
    select.bind(1, id.value);
    if (!select.executeStep()) return no_study(connection_->path, id);
    return read_summary(select);
  });
}

Result<Study> Store::study(StudyId id) const {
  return guarded(connection_->path, [&]() -> Result<Study> {
    SQLite::Statement select(connection_->database, "SELECT spec FROM study WHERE id = ?");
    select.bind(1, id.value);
    if (!select.executeStep()) return no_study(connection_->path, id);
    const std::string where = row_name(connection_->path, "study", id.value);
    FORETRAIN_TRY(const Json json, parse_json(select.getColumn(0).getString(), where));
    return study_from(json, where, connection_->data);
  });
}

Result<std::vector<StoredCandidate>> Store::ranked(StudyId id, Objective objective, int limit, int offset) const {
  return guarded(connection_->path, [&]() -> Result<std::vector<StoredCandidate>> {
    FORETRAIN_TRY(const Study parent, study(id));
    SQLite::Statement select(connection_->database, std::string(kCandidateColumns) + "WHERE candidate.study = ?" +
                                                        rank_order(objective) + " LIMIT ? OFFSET ?");
    select.bind(1, id.value);
    select.bind(2, limit);
    select.bind(3, offset);
    return read_candidates(select, parent, connection_->path);
  });
}

Result<void> Store::each_ranked(StudyId id, Objective objective, const std::function<bool(RankedRow)>& take) const {
  return guarded(connection_->path, [&]() -> Result<void> {
    SQLite::Database& database = connection_->database;
    // Both tables are read as they are at one moment.
    SQLite::Transaction moment(database);
    FORETRAIN_TRY(std::vector<Listed> list, listed_candidates(database, id, connection_->path));
    if (auto added = add_predictions(database, objective, connection_->path, list); !added) return added;
    std::erase_if(list, [](const Listed& entry) { return entry.detail < 0; });
    std::vector<std::uint32_t> order(list.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const Listed& x = list[a];
      const Listed& y = list[b];
      if (x.verdict != y.verdict) return x.verdict < y.verdict;
      return x.value != y.value ? x.value < y.value : a < b;
    });
    for (const std::uint32_t at : order) {
      Listed& entry = list[at];
      if (entry.row.engine != Engine::slots) {
        FORETRAIN_TRY(
            entry.row.prediction,
            read_document(database, entry.prediction, row_name(connection_->path, "candidate", entry.row.id.value)));
      }
      if (!take(std::move(entry.row))) break;
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
