#include <algorithm>

#include "core/base/digest.h"
#include "db/connection.h"
#include "db/layout_code.h"
#include "db/rows.h"

namespace foretrain {
namespace {

/// The statements of a batch, prepared once.
class CandidateInserter {
public:
  explicit CandidateInserter(SQLite::Database& database)
      : insert_(database, "INSERT INTO candidate(study, digest, layout, pareto, code) VALUES(?, ?, ?, ?, ?) "
                          "ON CONFLICT(study, digest) DO UPDATE SET pareto = max(pareto, excluded.pareto) "
                          "RETURNING id"),
        predict_(database,
                 "INSERT INTO prediction(candidate, engine, detail, semantics, calibration, verdict, "
                 "step_time_s, tokens_per_s_per_gpu, mfu_percent, peak_device_bytes, evidence, fullest_stage, "
                 "document) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                 "ON CONFLICT(candidate, detail, semantics, calibration) DO UPDATE SET "
                 "verdict = excluded.verdict, step_time_s = excluded.step_time_s, "
                 "tokens_per_s_per_gpu = excluded.tokens_per_s_per_gpu, mfu_percent = excluded.mfu_percent, "
                 "peak_device_bytes = excluded.peak_device_bytes, evidence = excluded.evidence, "
                 "fullest_stage = excluded.fullest_stage, document = excluded.document") {}

  CandidateId insert(StudyId study, const NewCandidate& candidate) {
    const std::string layout = to_json(candidate.layout).dump();
    insert_.reset();
    insert_.bind(1, study.value);
    insert_.bind(2, digest(layout));
    insert_.bind(3, layout);
    insert_.bind(4, candidate.pareto ? 1 : 0);
    const std::string code = layout_code(candidate.layout);
    if (code.empty())
      insert_.bind(5);
    else
      insert_.bind(5, code.data(), static_cast<int>(code.size()));
    insert_.executeStep();
    const CandidateId id{insert_.getColumn(0).getInt64()};
    insert_.executeStep(); // to the end: the row is written then
    for (const StoredPrediction& prediction : candidate.predictions) insert(id, prediction);
    return id;
  }

private:
  void insert(CandidateId candidate, const StoredPrediction& stored) {
    predict_.reset();
    predict_.bind(1, candidate.value);
    predict_.bind(2, std::string(id_of(stored.key.engine)));
    predict_.bind(3, detail_of(stored.key.engine));
    predict_.bind(4, stored.key.semantics);
    predict_.bind(5, stored.key.calibration);
    const Prediction& prediction = stored.prediction;
    predict_.bind(6, std::string(id_of(prediction.verdict)));
    predict_.bind(7, prediction.step_time.value); // NaN, the time of an illegal layout, becomes null
    predict_.bind(8, prediction.tokens_per_s_per_device);
    predict_.bind(9, prediction.mfu_percent);
    predict_.bind(10, peak_device(prediction).value);
    predict_.bind(11, std::string(id_of(prediction.evidence)));
    predict_.bind(12, fullest_stage(prediction));
    predict_.bind(13, prediction_text(prediction));
    predict_.exec();
  }

  SQLite::Statement insert_;
  SQLite::Statement predict_;
};

} // namespace

Result<StudyId> Store::begin_study(const Study& study, const std::string& program_version) {
  return in_transaction(*connection_, [&]() -> Result<StudyId> {
    const std::string spec = to_json(study).dump();
    SQLite::Statement insert(connection_->database, "INSERT INTO study(digest, spec, program_version) VALUES(?, ?, ?)");
    insert.bind(1, digest(spec));
    insert.bind(2, spec);
    insert.bind(3, program_version);
    insert.exec();
    return StudyId{connection_->database.getLastInsertRowid()};
  });
}

Result<std::vector<CandidateId>> Store::add_candidates(StudyId study, std::span<const NewCandidate> batch) {
  return in_transaction(*connection_, [&]() -> Result<std::vector<CandidateId>> {
    CandidateInserter inserter(connection_->database);
    std::vector<CandidateId> ids;
    ids.reserve(batch.size());
    for (const NewCandidate& candidate : batch) ids.push_back(inserter.insert(study, candidate));
    return ids;
  });
}

Result<void> Store::set_pareto(StudyId study, std::span<const CandidateId> front) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement clear(connection_->database, "UPDATE candidate SET pareto = 0 WHERE study = ? AND pareto <> 0");
    clear.bind(1, study.value);
    clear.exec();
    SQLite::Statement mark(connection_->database, "UPDATE candidate SET pareto = 1 WHERE id = ? AND study = ?");
    for (const CandidateId candidate : front) {
      mark.reset();
      mark.bind(1, candidate.value);
      mark.bind(2, study.value);
      if (mark.exec() == 0)
        return fail(row_name(connection_->path, "study", study.value),
                    "has no candidate " + std::to_string(candidate.value));
    }
    return {};
  });
}

Result<void> Store::add_near_misses(StudyId study, std::span<const StoredNearMiss> misses) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement insert(connection_->database, "INSERT INTO near_miss(study, layout, rejection) VALUES(?, ?, ?)");
    for (const StoredNearMiss& miss : misses) {
      insert.reset();
      insert.bind(1, study.value);
      insert.bind(2, to_json(miss.layout).dump());
      insert.bind(3, to_json(miss.rejection).dump());
      insert.exec();
    }
    return {};
  });
}

Result<void> Store::set_rejection_counts(StudyId study, const std::map<std::string, std::int64_t>& counts) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement clear(connection_->database, "DELETE FROM rejection_count WHERE study = ?");
    clear.bind(1, study.value);
    clear.exec();
    SQLite::Statement insert(connection_->database, "INSERT INTO rejection_count(study, rule, count) VALUES(?, ?, ?)");
    for (const auto& [rule, count] : counts) {
      insert.reset();
      insert.bind(1, study.value);
      insert.bind(2, rule);
      insert.bind(3, count);
      insert.exec();
    }
    return {};
  });
}

Result<void> Store::finish_study(StudyId study, const StudyCounts& counts, Seconds elapsed, bool complete) {
  return in_transaction(*connection_, [&]() -> Result<void> {
    SQLite::Statement update(connection_->database,
                             "UPDATE study SET enumerated = ?, legal = ?, evaluated = ?, fits = ?, elapsed_s = ?, "
                             "complete = ? WHERE id = ?");
    update.bind(1, counts.enumerated);
    update.bind(2, counts.legal);
    update.bind(3, counts.evaluated);
    update.bind(4, counts.fits);
    update.bind(5, elapsed.value);
    update.bind(6, complete ? 1 : 0);
    update.bind(7, study.value);
    if (update.exec() == 0) return fail(connection_->path, "no study " + std::to_string(study.value));
    return {};
  });
}

} // namespace foretrain
