// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/session_file.h"

#include "core/spec/calibration.h"
#include "core/spec/io.h"
#include "db/store.h"

namespace foretrain::gui {
namespace {

constexpr const char* kViewState = "gui";
constexpr int kFirstPage = 500;
constexpr int kPage = 5000;
constexpr std::size_t kBatch = 2000; ///< candidates per transaction

Row stored_row(StoredCandidate candidate) {
  Row row;
  row.layout = std::move(candidate.plan.layout);
  row.pareto = candidate.pareto;
  Prediction& prediction = candidate.best.prediction;
  row.slots.step_seconds = prediction.step_time.value;
  row.slots.evidence = prediction.evidence;
  for (std::size_t i = 0; i < prediction.memory.size(); ++i) {
    if (prediction.memory[i].device.value < row.slots.device_bytes) continue;
    row.slots.device_bytes = prediction.memory[i].device.value;
    row.slots.worst_stage = static_cast<int>(i);
  }
  // What the search alone saw has a time and a memory; the rest of such a document is empty.
  if (candidate.best.key.engine != Engine::slots) row.prediction = std::make_shared<const Prediction>(std::move(prediction));
  return row;
}

Result<std::shared_ptr<Results>> read_heads(const Store& store, StudyId id) {
  auto results = std::make_shared<Results>();
  FORETRAIN_TRY(results->study, store.study(id));
  FORETRAIN_TRY(const StudySummary summary, store.summary(id));
  results->enumerated = summary.counts.enumerated;
  results->legal = summary.counts.legal;
  results->evaluated = summary.counts.evaluated;
  results->fits = summary.counts.fits;
  results->complete = summary.complete;
  results->elapsed_s = summary.elapsed.value_or(Seconds(0)).value;
  FORETRAIN_TRY(results->rejected, store.rejection_counts(id));
  FORETRAIN_TRY(auto misses, store.near_misses(id));
  for (StoredNearMiss& miss : misses) results->near_misses.push_back({std::move(miss.layout), std::move(miss.rejection)});
  return results;
}

/// The search's figures of a layout that was not predicted in full: step time and the memory of its fullest stage.
Prediction slots_prediction(const Results& results, const Row& row) {
  Prediction prediction;
  prediction.engine = Engine::slots;
  prediction.step_time = Seconds(row.slots.step_seconds);
  if (row.slots.step_seconds > 0)
    prediction.tokens_per_s_per_device = double(results.study.job.sequence_length) *
                                         double(results.study.job.global_batch) /
                                         (row.slots.step_seconds * row.layout.world());
  prediction.memory.resize(static_cast<std::size_t>(row.slots.worst_stage) + 1);
  prediction.memory.back().device = Bytes(row.slots.device_bytes);
  return prediction;
}

Result<void> write_results(const Environment& environment, const std::filesystem::path& path, const Results& results) {
  FORETRAIN_TRY(Store store, Store::open(path, OpenMode::write, environment.data));
  FORETRAIN_TRY(const Calibration calibration, load_calibration(environment.data.root, results.study.cluster.device));
  FORETRAIN_TRY(const std::string digest,
                store.keep_calibration(results.study.cluster.device.name, to_json(calibration).dump()));
  FORETRAIN_TRY(const StudyId id, store.begin_study(results.study, environment.version));
  std::vector<CandidateId> front;
  for (std::size_t from = 0; from < results.rows.size(); from += kBatch) {
    const std::size_t to = std::min(results.rows.size(), from + kBatch);
    std::vector<NewCandidate> batch;
    for (std::size_t i = from; i < to; ++i) {
      const Row& row = results.rows[i];
      Prediction prediction = row.prediction ? *row.prediction : slots_prediction(results, row);
      const PredictionKey key{prediction.engine, results.study.job.semantics, digest};
      batch.push_back({row.layout, {{key, std::move(prediction)}}, row.pareto});
    }
    FORETRAIN_TRY(const auto ids, store.add_candidates(id, batch));
    for (std::size_t i = from; i < to; ++i)
      if (results.rows[i].pareto) front.push_back(ids[i - from]);
  }
  if (auto done = store.set_pareto(id, front); !done) return done;
  std::vector<StoredNearMiss> misses;
  for (const Miss& miss : results.near_misses) misses.push_back({miss.layout, miss.rejection});
  if (auto done = store.add_near_misses(id, misses); !done) return done;
  if (auto done = store.set_rejection_counts(id, results.rejected); !done) return done;
  return store.finish_study(id, {results.enumerated, results.legal, results.evaluated, results.fits},
                            Seconds(results.elapsed_s), results.complete);
}

} // namespace

Result<SavedSession> SessionFile::open(const std::filesystem::path& path) const {
  FORETRAIN_TRY(const Store store, Store::open(path, OpenMode::read, environment_.data));
  SavedSession saved;
  FORETRAIN_TRY(const std::optional<std::string> state, store.view_state(kViewState));
  if (state) {
    FORETRAIN_TRY(saved.view_state, parse_json(*state, path.string()));
  }
  FORETRAIN_TRY(const std::vector<StudySummary> studies, store.studies(1));
  if (studies.empty()) return saved;
  saved.study_id = studies.front().id.value;
  saved.candidates = studies.front().candidates;
  FORETRAIN_TRY(const Study study, store.study(studies.front().id));
  saved.study = to_json(study);
  return saved;
}

void SessionFile::read_rows(const std::filesystem::path& path, std::int64_t study,
                            std::function<void(Result<std::shared_ptr<const Results>>)> arrived) {
  wait();
  reading_ = true;
  const auto deliver = [this, arrived = std::move(arrived),
                        generation = generation_](Result<std::shared_ptr<const Results>> results, bool last) {
    inbox_.post([this, arrived, generation, results = std::move(results), last] {
      if (generation != generation_) return;
      if (last) reading_ = false;
      arrived(results);
    });
  };
  reader_ = std::jthread([this, path, study, deliver](const std::stop_token& stop) {
    const auto store = Store::open(path, OpenMode::read, environment_.data);
    if (!store) return deliver(tl::unexpected<Error>(store.error()), true);
    auto heads = read_heads(*store, StudyId{study});
    if (!heads) return deliver(tl::unexpected<Error>(heads.error()), true);
    std::vector<Row> rows;
    int wanted = kFirstPage;
    for (bool more = true; more && !stop.stop_requested();) {
      auto page = store->ranked(StudyId{study}, (*heads)->study.objective, wanted, static_cast<int>(rows.size()));
      if (!page) return deliver(tl::unexpected<Error>(page.error()), true);
      more = static_cast<int>(page->size()) == wanted;
      for (StoredCandidate& candidate : *page) rows.push_back(stored_row(std::move(candidate)));
      if (wanted == kFirstPage || !more) {
        auto part = std::make_shared<Results>(**heads);
        part->rows = rows;
        mark_front(part->rows);
        deliver(std::shared_ptr<const Results>(std::move(part)), !more);
      }
      wanted = kPage;
    }
  });
}

void SessionFile::write(const std::filesystem::path& path, std::shared_ptr<const Results> results,
                        std::function<void(Result<void>)> done) {
  wait();
  writing_ = true;
  writer_ = std::jthread([this, path, results = std::move(results), done = std::move(done), generation = generation_] {
    auto written = write_results(environment_, path, *results);
    inbox_.post([this, done, generation, written = std::move(written)] {
      if (generation == generation_) writing_ = false;
      done(written);
    });
  });
}

Result<void> SessionFile::write_view_state(const std::filesystem::path& path, const Json& state) const {
  FORETRAIN_TRY(Store store, Store::open(path, OpenMode::write, environment_.data, Seconds(2)));
  return store.keep_view_state(kViewState, state.dump());
}

void SessionFile::wait() {
  if (reader_.joinable()) {
    reader_.request_stop();
    reader_.join();
  }
  if (writer_.joinable()) writer_.join();
  ++generation_;
  reading_ = false;
  writing_ = false;
}

} // namespace foretrain::gui
