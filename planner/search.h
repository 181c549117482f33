#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/spec/calibration.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "core/spec/semantics.h"
#include "planner/evaluate.h"
#include "simulator/simulation.h"

namespace foretrain {

/// How far a search is. `done` counts layouts of the space that were judged.
struct Progress {
  std::string phase; ///< "floors", "search", "replay", "simgrid"
  std::int64_t done = 0;
  std::int64_t total = 0;
  std::int64_t fitting = 0;
};

struct SearchResult;

/// Which layouts a search evaluates. The best that are asked for, their ranking and the front are the same.
enum class Extent {
  automatic,  ///< every one where degrees leave at most `kEveryLayout`, else `best`
  exhaustive, ///< every one that can fit
  best,       ///< those that can be among the best, by a bound
};
[[nodiscard]] std::string_view id_of(Extent value);
[[nodiscard]] Result<Extent> extent_from(std::string_view id, std::string_view where);
inline constexpr std::int64_t kEveryLayout = 1'000'000;

struct SearchOptions {
  Extent extent = Extent::automatic;
  int jobs = 1;                ///< worker threads (and simulator processes)
  int top = 20;                ///< plans in `ranked`
  std::int64_t keep = 100'000; ///< candidates kept, for a store or a view
  /// As many of `kept` must be the best of the space; 0: all of them. Those that are refined always are.
  std::int64_t best = 0;
  bool front = true;      ///< `kept` must hold the whole front of time and memory
  int near_misses = 20;   ///< per rule
  bool refine = true;     ///< replay the best at op granularity
  int refine_replay = 50; ///< candidates replayed op by op
  int refine_simgrid = 0; ///< of these, simulated on the network
  std::string worker;     ///< path of foretrain-sim-worker; empty: beside the running program
  std::string data;       ///< root of the data folder, for the workers; needed with refine_simgrid > 0
  std::function<void(const Progress&)> progress; ///< called from one thread at a time, at most ten times a second
  /// The best so far: `kept` with at most `found_limit` candidates, `enumerated` and `fits`; the rest is empty. Called
  /// as `progress` is, when they have changed; once more with all that is kept before the best are replayed.
  std::function<void(const SearchResult&)> found;
  int found_limit = 200;
  const std::atomic<bool>* stop = nullptr; ///< set to end early; what was found stands
};

struct Candidate {
  Layout layout;
  Evaluation slots;      ///< of the search
  Prediction prediction; ///< of the best engine that looked at it; empty verdict data for kept-only candidates
  bool refined = false;
};

struct NearMiss {
  Layout layout;
  Rejection rejection;
  Evaluation slots; ///< of out-of-memory misses
};

struct SearchResult {
  std::int64_t enumerated = 0;
  std::int64_t legal = 0;
  std::int64_t evaluated = 0;
  std::int64_t fits = 0;
  std::map<std::string, std::int64_t> pruned;   ///< bound -> layouts not evaluated because of it
  bool exhaustive = true;                       ///< every layout that can fit was evaluated
  std::map<std::string, std::int64_t> rejected; ///< rule -> count ("out-of-memory" among them)
  std::vector<Candidate> ranked;                ///< best first by the objective, `top` entries, all with a prediction
  std::vector<Candidate> kept;                  ///< best by the objective, at most `keep`; ranked ones are the first
  std::vector<int> pareto;                      ///< indices into `ranked` on the step time / device memory front
  std::vector<NearMiss> near_misses;
  int tied_with_best = 0; ///< ranked plans within the best one's interval of its own
  int preferred = -1;     ///< index into `ranked` of the one to take among those that tie (ties.h)
  bool complete = true;   ///< false: stopped early
  double search_s = 0;
  double elapsed_s = 0;
  int jobs = 1;
};

/// How many layouts a study has, and how many are left once filter and rules have looked at degrees alone. Errors: the
/// filter.
struct SpaceSize {
  std::int64_t enumerated = 0;
  std::int64_t left = 0;
};
[[nodiscard]] Result<SpaceSize> space_size(const Study& study, const Semantics& semantics);

/// How many candidates the ranking looks at, at most.
[[nodiscard]] std::size_t most_refined(const SearchOptions& options);
/// How many of the best a search must find.
[[nodiscard]] std::size_t exact_best(const SearchOptions& options);

/// Enumerates, judges and ranks a study's layouts. Equal studies give equal results for any number of jobs, apart from
/// `search_s`, `elapsed_s` and `jobs`. Errors: a figure that the study needs is unknown; no worker program.
[[nodiscard]] Result<SearchResult> search(const Study& study, const Semantics& semantics,
                                          const Calibration& calibration, const SearchOptions& options);

/// One plan: all rejections when illegal, else its prediction by the engine. Errors: as `search`.
[[nodiscard]] Result<Prediction> predict(const Plan& plan, const Semantics& semantics, const Calibration& calibration,
                                         Engine engine, const std::string& worker, const std::string& data);

/// A step simulated on the network: its prediction, and what each link and group saw.
struct Simulated {
  Prediction prediction;
  Simulation run;
};

/// The same of one legal plan on the simulated network. `stop` may be null. Errors: as `predict`; it is not legal;
/// stopped.
[[nodiscard]] Result<Simulated> simulate(const Plan& plan, const Semantics& semantics, const Calibration& calibration,
                                         const std::string& worker, const std::string& data,
                                         const std::atomic<bool>* stop);

} // namespace foretrain
