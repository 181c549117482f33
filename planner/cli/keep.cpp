#include "planner/cli/keep.h"

#include <algorithm>

#include "core/base/digest.h"
#include "db/store.h"
#include "planner/cli/context.h"

namespace foretrain::cli {
namespace {

constexpr std::size_t kBatch = 2000; ///< candidates per transaction

/// What the search knows of a layout that was not predicted in full: step time, and the memory of its fullest stage.
Prediction slots_prediction(const Study& study, const Candidate& candidate) {
  Prediction prediction;
  prediction.engine = Engine::slots;
  prediction.step_time = Seconds(candidate.slots.step_seconds);
  if (candidate.slots.step_seconds > 0)
    prediction.tokens_per_s_per_device = static_cast<double>(study.job.sequence_length) *
                                         static_cast<double>(study.job.global_batch) /
                                         (candidate.slots.step_seconds * candidate.layout.world());
  StageMemory stage;
  stage.device = Bytes(candidate.slots.device_bytes);
  prediction.memory.assign(static_cast<std::size_t>(candidate.slots.worst_stage) + 1, StageMemory{});
  prediction.memory.back() = stage;
  return prediction;
}

} // namespace

struct StudyRecord::Data {
  Store store;
  StudyId id;
  std::string semantics;
  std::string calibration;
};

StudyRecord::StudyRecord(std::unique_ptr<Data> data) : data_(std::move(data)) {}
StudyRecord::~StudyRecord() = default;
StudyRecord::StudyRecord(StudyRecord&&) noexcept = default;
StudyRecord& StudyRecord::operator=(StudyRecord&&) noexcept = default;

Result<StudyRecord> StudyRecord::begin(const std::string& file, const DataFolder& data, const Study& study,
                                       const Calibration& calibration) {
  FORETRAIN_TRY(Store store, Store::open(file, OpenMode::write, data));
  FORETRAIN_TRY(std::string digest, store.keep_calibration(study.cluster.device.name, to_json(calibration).dump()));
  FORETRAIN_TRY(const StudyId id, store.begin_study(study, std::string(version())));
  return StudyRecord(std::unique_ptr<Data>(new Data{std::move(store), id, study.job.semantics, std::move(digest)}));
}

Result<void> StudyRecord::keep(const Study& study, const SearchResult& result) {
  Store& store = data_->store;
  std::vector<CandidateId> front;
  const auto key = [&](Engine engine) { return PredictionKey{engine, data_->semantics, data_->calibration}; };
  std::vector<NewCandidate> batch;
  const auto flush = [&]() -> Result<std::vector<CandidateId>> {
    auto ids = store.add_candidates(data_->id, batch);
    batch.clear();
    return ids;
  };
  for (const Candidate& candidate : result.kept) {
    batch.push_back({candidate.layout, {{key(Engine::slots), slots_prediction(study, candidate)}}, false});
    if (batch.size() < kBatch) continue;
    FORETRAIN_TRY(const auto ids, flush());
  }
  FORETRAIN_TRY(const auto rest, flush());
  // After the others: a full prediction takes the place of the short one by the same engine.
  for (const Candidate& candidate : result.ranked)
    batch.push_back({candidate.layout, {{key(candidate.prediction.engine), candidate.prediction}}, false});
  FORETRAIN_TRY(const std::vector<CandidateId> ranked, flush());
  for (const int index : result.pareto) front.push_back(ranked[static_cast<std::size_t>(index)]);
  if (const auto done = store.set_pareto(data_->id, front); !done) return done;
  std::vector<StoredNearMiss> misses;
  for (const NearMiss& miss : result.near_misses) misses.push_back({miss.layout, miss.rejection});
  if (const auto done = store.add_near_misses(data_->id, misses); !done) return done;
  if (const auto done = store.set_rejection_counts(data_->id, result.rejected); !done) return done;
  const StudyCounts counts{result.enumerated, result.legal, result.evaluated, result.fits};
  return store.finish_study(data_->id, counts, Seconds(result.elapsed_s), result.complete);
}

} // namespace foretrain::cli
