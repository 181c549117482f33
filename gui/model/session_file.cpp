// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/session_file.h"

#include "core/spec/io.h"
#include "db/store.h"
#include "planner/finish.h"

namespace foretrain::gui {
namespace {

constexpr const char* kViewState = "gui";
constexpr const char* kSelected = "gui-selected";
constexpr std::size_t kFirstPage = 500; ///< rows that are shown before all are read
constexpr std::size_t kBatch = 2000;    ///< candidates per transaction

Row stored_row(RankedRow stored) {
  Row row;
  row.layout = std::move(stored.layout);
  row.pareto = stored.pareto;
  row.slots.step_seconds = stored.step_time.value;
  row.slots.device_bytes = stored.device.value;
  row.slots.worst_stage = stored.fullest_stage;
  row.slots.evidence = stored.evidence;
  row.prediction = std::move(stored.prediction);
  return row;
}

/// What a file does not keep of rows that were not predicted in full: their utilisation, by the tensor-parallel degree.
class SlotsUtilisation {
public:
  SlotsUtilisation(const Study& study, const DataFolder& data)
      : study_(study), semantics_(data.semantics(study.job.semantics)) {}
  void fill(Row& row) {
    if (!semantics_ || row.prediction) return;
    const int tp = row.layout.tp;
    auto known = by_tp_.find(tp);
    if (known == by_tp_.end())
      known = by_tp_.emplace(tp, Utilisation(study_.model, study_.cluster, study_.job, *semantics_, tp)).first;
    row.slots.tflops_per_device = known->second.tflops_per_device(row.slots.step_seconds);
    row.slots.mfu_percent = known->second.mfu_percent(row.slots.step_seconds);
  }

private:
  const Study& study_;
  Result<Semantics> semantics_;
  std::map<int, Utilisation> by_tp_;
};

/// A file of an older program is brought forward, if it may be written.
Result<Store> open_to_read(const std::filesystem::path& path, const DataFolder& data) {
  auto store = Store::open(path, OpenMode::read, data);
  std::error_code ignored;
  if (store || !std::filesystem::exists(path, ignored)) return store;
  const auto forward = Store::open(path, OpenMode::write, data, Seconds(2));
  return forward ? Store::open(path, OpenMode::read, data) : std::move(store);
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
  for (StoredNearMiss& miss : misses)
    results->near_misses.push_back({std::move(miss.layout), std::move(miss.rejection)});
  return results;
}

/// The search's figures of a layout that was not predicted in full: step time and the memory of its fullest stage.
Prediction slots_prediction(const Results& results, const Row& row) {
  Prediction prediction;
  prediction.engine = Engine::slots;
  prediction.evidence = row.slots.evidence;
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
  FORETRAIN_TRY(const Calibration calibration, calibration_of(environment, results.study.cluster.device));
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
  FORETRAIN_TRY(const Store store, open_to_read(path, environment_.data));
  SavedSession saved;
  FORETRAIN_TRY(const std::optional<std::string> state, store.view_state(kViewState));
  if (state) {
    FORETRAIN_TRY(saved.view_state, parse_json(*state, path.string()));
    saved.written = state;
  }
  FORETRAIN_TRY(const std::optional<std::string> selected, store.view_state(kSelected));
  if (selected) {
    FORETRAIN_TRY(saved.selected, parse_json(*selected, path.string()));
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
  stop_reading();
  reading_ = true;
  const auto deliver = [this, arrived = std::move(arrived),
                        reading = readings_](Result<std::shared_ptr<const Results>> results, bool last) {
    inbox_.post([this, arrived, reading, results = std::move(results), last] {
      if (reading != readings_) return;
      if (last) reading_ = false;
      arrived(results);
    });
  };
  reader_ = std::jthread([this, path, study, deliver](const std::stop_token& stop) {
    const auto store = Store::open(path, OpenMode::read, environment_.data);
    if (!store) return deliver(tl::unexpected<Error>(store.error()), true);
    auto heads = read_heads(*store, StudyId{study});
    if (!heads) return deliver(tl::unexpected<Error>(heads.error()), true);
    const std::shared_ptr<Results>& all = *heads;
    const auto share = [&](std::shared_ptr<Results> part, bool last) {
      mark_front(part->rows);
      deliver(std::shared_ptr<const Results>(std::move(part)), last);
    };
    SlotsUtilisation utilisation(all->study, environment_.data);
    const auto read = store->each_ranked(StudyId{study}, all->study.objective, [&](RankedRow row) {
      all->rows.push_back(stored_row(std::move(row)));
      utilisation.fill(all->rows.back());
      if (all->rows.size() == kFirstPage) share(std::make_shared<Results>(*all), false);
      return !stop.stop_requested();
    });
    if (!read) return deliver(tl::unexpected<Error>(read.error()), true);
    if (!stop.stop_requested()) share(*heads, true);
  });
}

void SessionFile::start_writing(std::function<Result<void>()> write, std::function<void(Result<void>)> done) {
  ++writing_;
  writer_ = std::jthread([this, before = std::move(writer_), write = std::move(write), done = std::move(done),
                          generation = generation_]() mutable {
    if (before.joinable()) before.join();
    auto written = write();
    inbox_.post([this, done, generation, written = std::move(written)] {
      if (generation == generation_) --writing_;
      done(written);
    });
  });
}

void SessionFile::write(const std::filesystem::path& path, std::shared_ptr<const Results> results,
                        std::function<void(Result<void>)> done) {
  start_writing([this, path, results = std::move(results)] { return write_results(environment_, path, *results); },
                std::move(done));
}

void SessionFile::copy(const std::filesystem::path& from, const std::filesystem::path& to,
                       std::function<void(Result<void>)> done) {
  start_writing(
      [this, from, to]() -> Result<void> {
        FORETRAIN_TRY(const Store store, Store::open(from, OpenMode::read, environment_.data));
        return store.copy_to(to);
      },
      std::move(done));
}

void SessionFile::remove_runs(const std::filesystem::path& path, std::vector<std::int64_t> runs,
                              std::function<void(Result<void>)> done) {
  start_writing(
      [this, path, runs = std::move(runs)]() -> Result<void> {
        FORETRAIN_TRY(Store store, Store::open(path, OpenMode::write, environment_.data));
        for (const std::int64_t run : runs)
          if (auto removed = store.remove_run(RunId{run}); !removed) return removed;
        return {};
      },
      std::move(done));
}

Result<bool> SessionFile::write_view_state(const std::filesystem::path& path, const std::optional<std::string>& before,
                                           const std::string& state) const {
  FORETRAIN_TRY(Store store, Store::open(path, OpenMode::write, environment_.data, Seconds(2)));
  return store.replace_view_state(kViewState, before, state);
}

Result<std::optional<std::string>> SessionFile::view_state(const std::filesystem::path& path) const {
  FORETRAIN_TRY(const Store store, Store::open(path, OpenMode::read, environment_.data, Seconds(2)));
  return store.view_state(kViewState);
}

Result<void> SessionFile::write_selected(const std::filesystem::path& path, const Json& layout) const {
  FORETRAIN_TRY(Store store, Store::open(path, OpenMode::write, environment_.data, Seconds(0.5)));
  return store.keep_view_state(kSelected, layout.dump());
}

void SessionFile::stop_reading() {
  if (reader_.joinable()) {
    reader_.request_stop();
    reader_.join();
  }
  ++readings_;
  reading_ = false;
}

void SessionFile::wait() {
  stop_reading();
  if (writer_.joinable()) writer_.join();
  ++generation_;
  writing_ = 0;
}

} // namespace foretrain::gui
