#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "core/spec/presets.h"

namespace foretrain {

/// Row numbers; a number of one table is not one of another.
template <class Tag> struct RowId {
  std::int64_t value = 0;
  bool operator==(const RowId&) const = default;
};
using StudyId = RowId<struct StudyTag>;
using CandidateId = RowId<struct CandidateTag>;
using RunId = RowId<struct RunTag>;

enum class OpenMode {
  read,  ///< an existing file; nothing is written
  write, ///< created when missing, brought up to date when older
};

/// What a prediction was made with. `calibration` is a digest, empty for none.
struct PredictionKey {
  Engine engine = Engine::slots;
  std::string semantics;
  std::string calibration;
  bool operator==(const PredictionKey&) const = default;
};

struct StoredPrediction {
  PredictionKey key;
  Prediction prediction;
  bool operator==(const StoredPrediction&) const = default;
};

/// A layout to keep, with what is known of it.
struct NewCandidate {
  Layout layout;
  std::vector<StoredPrediction> predictions;
  bool pareto = false;
  bool operator==(const NewCandidate&) const = default;
};

/// A layout as read back. `best` is its most detailed prediction: SimGrid before replay before slots.
struct StoredCandidate {
  CandidateId id;
  StudyId study;
  Plan plan;
  StoredPrediction best;
  bool pareto = false;
  bool operator==(const StoredCandidate&) const = default;
};

/// A candidate as a table lists it. `prediction` is the document of an engine that looks at single ops; what only the
/// search has seen is in the other members.
struct RankedRow {
  CandidateId id;
  Layout layout;
  bool pareto = false;
  Engine engine = Engine::slots;
  Evidence evidence = Evidence::datasheet;
  Seconds step_time;
  Bytes device; ///< of the fullest stage
  int fullest_stage = 0;
  std::shared_ptr<const Prediction> prediction;
};

struct StoredNearMiss {
  Layout layout;
  Rejection rejection;
  bool operator==(const StoredNearMiss&) const = default;
};

/// How many layouts a search met.
struct StudyCounts {
  std::int64_t enumerated = 0;
  std::int64_t legal = 0;
  std::int64_t evaluated = 0; ///< given a time and a memory
  std::int64_t fits = 0;
  bool operator==(const StudyCounts&) const = default;
};

struct StudySummary {
  StudyId id;
  std::string digest; ///< of the study's JSON: equal studies have equal digests
  std::string model;
  std::string cluster;
  int sequence_length = 0;
  std::int64_t global_batch = 0;
  std::string semantics;
  std::string created_at; ///< UTC, ISO 8601
  std::string program_version;
  bool complete = false; ///< false: the search runs, was interrupted or killed
  std::optional<Seconds> elapsed;
  StudyCounts counts;
  std::int64_t candidates = 0; ///< kept
  bool operator==(const StudySummary&) const = default;
};

enum class RunStatus { running, done, failed, interrupted };

/// Time of one op on one rank over the measured steps of a run.
struct RunOp {
  int rank = 0;
  int op = 0; ///< number in the rank's step (places_of)
  std::string axis;
  int stage = 0;
  int samples = 0;
  Seconds median;
  Seconds p10;
  Seconds p90;
  std::string name;  ///< "forward ffn_up"
  Seconds predicted; ///< undisturbed, at the time of the run
  bool operator==(const RunOp&) const = default;
};

/// One measured figure of a run: "step_time" of a step in s, "peak_allocated" of a rank in bytes, "loss".
struct RunFigure {
  std::string item;
  std::optional<int> rank;
  std::optional<int> step;
  double value = 0;
  std::string unit;
  bool operator==(const RunFigure&) const = default;
};

struct RunSummary {
  RunId id;
  std::string digest; ///< of the plan's JSON
  std::string model;
  std::string cluster;
  std::string launcher;
  std::string created_at;
  RunStatus status = RunStatus::running;
  int steps = 0;
  std::string message; ///< why it failed
  std::string folder;  ///< of its files: the plan, every step of every rank, logs
  Json environment;    ///< hardware and versions; null until the run has begun
  bool operator==(const RunSummary&) const = default;
};

/// Studies, runs and calibrations in one SQLite file. Two programs may use a file at once: readers never wait, a writer
/// waits up to `patience` for another. Each call is one transaction: after a kill at any moment the file opens with
/// everything that had returned. No exception leaves. A Store is used by one thread at a time.
class Store {
public:
  /// `data` holds the semantics that stored plans name. Errors: no such file or folder, no permission, not a database,
  /// one of another program or of a newer foretrain (both stay untouched), damaged, locked for longer than `patience`,
  /// a full disk.
  [[nodiscard]] static Result<Store> open(const std::filesystem::path& path, OpenMode mode, const DataFolder& data,
                                          Seconds patience = Seconds(10));
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  // Studies. A study that was done before gets a new row; the earlier one stays.
  [[nodiscard]] Result<StudyId> begin_study(const Study& study, const std::string& program_version);
  /// One transaction per call. A layout that the study has already gets further predictions; one with an equal key
  /// replaces the earlier.
  [[nodiscard]] Result<std::vector<CandidateId>> add_candidates(StudyId study, std::span<const NewCandidate> batch);
  /// The Pareto front, in place of the one before.
  [[nodiscard]] Result<void> set_pareto(StudyId study, std::span<const CandidateId> front);
  [[nodiscard]] Result<void> add_near_misses(StudyId study, std::span<const StoredNearMiss> misses);
  /// Rejected layouts per rule, in place of the counts before.
  [[nodiscard]] Result<void> set_rejection_counts(StudyId study, const std::map<std::string, std::int64_t>& counts);
  [[nodiscard]] Result<void> finish_study(StudyId study, const StudyCounts& counts, Seconds elapsed, bool complete);

  /// Newest first.
  [[nodiscard]] Result<std::vector<StudySummary>> studies(int limit, int offset = 0) const;
  [[nodiscard]] Result<StudySummary> summary(StudyId study) const;
  [[nodiscard]] Result<Study> study(StudyId study) const;
  /// Those that fit first and the illegal last, then by objective of the most detailed prediction, then in the order
  /// they were added.
  [[nodiscard]] Result<std::vector<StoredCandidate>> ranked(StudyId study, Objective objective, int limit,
                                                            int offset = 0) const;
  /// All of them in the same order, one after the other, until `take` returns false: a hundred thousand in a fraction
  /// of a second, because the documents of most are not read.
  [[nodiscard]] Result<void> each_ranked(StudyId study, Objective objective,
                                         const std::function<bool(RankedRow)>& take) const;
  [[nodiscard]] Result<std::vector<StoredCandidate>> pareto(StudyId study) const;
  [[nodiscard]] Result<StoredCandidate> candidate(CandidateId candidate) const;
  /// Most detailed first.
  [[nodiscard]] Result<std::vector<StoredPrediction>> predictions(CandidateId candidate) const;
  [[nodiscard]] Result<std::vector<StoredNearMiss>> near_misses(StudyId study) const;
  [[nodiscard]] Result<std::map<std::string, std::int64_t>> rejection_counts(StudyId study) const;

  // Runs. Measurements are never overwritten: a second figure is a second row, a second time of an op an error.
  [[nodiscard]] Result<RunId> begin_run(const Plan& plan, std::span<const StoredPrediction> predictions,
                                        const std::string& launcher, const std::string& program_version);
  /// Where its files are, and on what it runs.
  [[nodiscard]] Result<void> describe_run(RunId run, const std::string& folder, const Json& environment);
  [[nodiscard]] Result<void> add_run_ops(RunId run, std::span<const RunOp> ops);
  [[nodiscard]] Result<void> add_run_figures(RunId run, std::span<const RunFigure> figures);
  [[nodiscard]] Result<void> finish_run(RunId run, RunStatus status, int steps, const std::string& message);
  /// Takes a run out with all that was measured in it: an import that is taken back. Error: there is no such run.
  [[nodiscard]] Result<void> remove_run(RunId run);
  [[nodiscard]] Result<std::vector<RunSummary>> runs(int limit, int offset = 0) const;
  [[nodiscard]] Result<RunSummary> run(RunId run) const;
  [[nodiscard]] Result<Plan> run_plan(RunId run) const;
  [[nodiscard]] Result<std::vector<StoredPrediction>> run_predictions(RunId run) const;
  [[nodiscard]] Result<std::vector<RunOp>> run_ops(RunId run) const;
  [[nodiscard]] Result<std::vector<RunFigure>> run_figures(RunId run) const;

  // Documents kept by key, as JSON text.
  /// The digest under which it is found. Keeping the same document twice is one row.
  [[nodiscard]] Result<std::string> keep_calibration(const std::string& device, const std::string& document);
  [[nodiscard]] Result<std::string> calibration(const std::string& digest) const;
  [[nodiscard]] Result<void> keep_view_state(const std::string& name, const std::string& document);
  /// The same if it still is what `before` says (absent: there is none). False, and nothing is written, when another
  /// program has changed it.
  [[nodiscard]] Result<bool> replace_view_state(const std::string& name, const std::optional<std::string>& before,
                                                const std::string& document);
  [[nodiscard]] Result<std::optional<std::string>> view_state(const std::string& name) const;

  /// Writes all that is committed, what still lies beside the file included, to another file, in place of what is
  /// there. The copy appears whole or not at all. Errors: no such folder, no permission, a full disk.
  [[nodiscard]] Result<void> copy_to(const std::filesystem::path& path) const;

  struct Connection;

private:
  explicit Store(std::unique_ptr<Connection> connection);

  std::unique_ptr<Connection> connection_;
};

[[nodiscard]] std::string_view id_of(RunStatus status);

} // namespace foretrain
