#include "planner/refine.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <thread>

#include "core/program/lower.h"
#include "core/program/reserved.h"
#include "core/spec/intervals.h"
#include "planner/finish.h"
#include "planner/rules/rule.h"
#include "planner/short_runs.h"
#include "planner/slot_bound.h"
#include "simulator/launches.h"
#include "simulator/pool.h"
#include "simulator/replay.h"

namespace foretrain {
namespace {

Bytes device_of(const Prediction& prediction) {
  Bytes highest;
  for (const StageMemory& stage : prediction.memory) highest = std::max(highest, stage.device);
  return highest;
}

double value_of(Objective objective, const Prediction& prediction) {
  switch (objective) {
  case Objective::step_time:
  case Objective::throughput:
  case Objective::cost:
    return prediction.step_time.value;
  case Objective::memory_headroom:
    return static_cast<double>(device_of(prediction).value);
  }
  return prediction.step_time.value;
}

/// Puts an op-level run into a prediction: its time and parts, and the memory of the same Program.
Prediction from_simulation(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics,
                           const Program& program, const Simulation& run, Engine engine, Evidence evidence) {
  Prediction base;
  base.engine = engine;
  base.evidence = evidence;
  base.time = run.time;
  double busiest = 0;
  const auto of_host = static_cast<std::size_t>(TimePart::host); // hosts differ in speed as devices do
  for (const StageRun& stage : run.stages) busiest = std::max(busiest, stage.compute + stage.parts[of_host].value);
  const double waiting = evaluator.straggling(busiest);
  const Seconds host = semantics.host_per_layer * kStepLaunches;
  base.step_time = run.step_time + Seconds(waiting) + host;
  base.time[static_cast<std::size_t>(TimePart::host)] += host;
  base.time[static_cast<std::size_t>(TimePart::other)] += Seconds(waiting);
  for (const Role& role : program.roles)
    base.memory.push_back(stage_memory_within(program, role, evaluator.capacity()));
  finish_prediction(base, plan, semantics, evaluator.capacity());
  return base;
}

Result<Prediction> replayed(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics,
                            Evidence evidence) {
  const Program program = lower(plan, semantics);
  FORETRAIN_TRY(const Simulation run, replay_step(evaluator, plan, semantics, program));
  return from_simulation(evaluator, plan, semantics, program, run, Engine::replay, evidence);
}

SimulationRequest request_of(const Plan& plan, const std::string& data, std::int64_t id) {
  SimulationRequest request;
  request.id = id;
  request.plan = plan;
  request.data = data;
  return request;
}

/// Whether ops can be quicker than the best when slots are not: by the bound between the two for such a layout.
bool may_beat(const Candidate& candidate, double best, const Semantics& semantics) {
  const double bound = slot_op_bound(slot_family(candidate.layout, semantics));
  return candidate.slots.step_seconds * (1 - bound) <= best;
}

bool stopped(const SearchOptions& options) {
  return options.stop && options.stop->load(std::memory_order_relaxed);
}

/// `work` for every index below `count`, on `jobs` threads; what it writes is its own.
template <class Work> void in_parallel(std::size_t count, int jobs, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < jobs; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

/// Candidates of a search that its filter may admit, best first. What slots do not keep (the parts of the
/// step) is asked of their full prediction: it is there for every candidate, and without it a condition would see the
/// best only.
class Admitted {
public:
  Admitted(const Study& study, const Filter& filter, const Evaluator& evaluator, const SearchOptions& options,
           const std::vector<Candidate>& kept)
      : study_(study), filter_(filter), evaluator_(evaluator), options_(options), kept_(kept) {}

  /// Index of the next one; none when there is none, or when the search was stopped.
  std::optional<std::size_t> peek() {
    fill(1);
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.front());
  }

  /// The next `count`, or fewer.
  std::vector<std::size_t> take(std::size_t count) {
    fill(count);
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(count, waiting_.size()));
    std::vector<std::size_t> taken(waiting_.begin(), end);
    waiting_.erase(waiting_.begin(), end);
    return taken;
  }

private:
  void fill(std::size_t count) {
    while (waiting_.size() < count && at_ < kept_.size() && !stopped(options_)) {
      const std::size_t first = at_;
      at_ = std::min(kept_.size(), first + std::max<std::size_t>(count, static_cast<std::size_t>(options_.jobs) * 16));
      std::vector<char> may(at_ - first, 1);
      if (!filter_.empty())
        in_parallel(may.size(), options_.jobs, [&](std::size_t i) { may[i] = admits(kept_[first + i]); });
      for (std::size_t i = 0; i < may.size(); ++i)
        if (may[i]) waiting_.push_back(first + i);
    }
  }

  [[nodiscard]] bool admits(const Candidate& candidate) const {
    FieldRow row{study_.job, study_.cluster, candidate.layout, &candidate.slots};
    if (const Truth truth = filter_.test(row); truth != Truth::unknown) return truth == Truth::yes;
    const Prediction prediction = evaluator_.predict(candidate.layout);
    row.prediction = &prediction;
    row.provisional = options_.refine;
    return filter_.test(row) != Truth::no;
  }

  const Study& study_;
  const Filter& filter_;
  const Evaluator& evaluator_;
  const SearchOptions& options_;
  const std::vector<Candidate>& kept_;
  std::deque<std::size_t> waiting_;
  std::size_t at_ = 0;
};

/// Replays the candidates at `indices` on `jobs` threads; results do not depend on their number.
std::vector<Result<Prediction>> replay_all(const Study& study, const Semantics& semantics, const Evaluator& evaluator,
                                           const SearchOptions& options, const SearchResult& result,
                                           const std::vector<std::size_t>& indices) {
  std::vector<Result<Prediction>> predictions(indices.size(), Result<Prediction>(Prediction{}));
  in_parallel(indices.size(), options.jobs, [&](std::size_t i) {
    if (stopped(options)) {
      Error error;
      error.kind = Error::Kind::cancelled;
      error.message = "interrupted";
      predictions[i] = tl::unexpected<Error>(error);
      return;
    }
    const Candidate& candidate = result.kept[indices[i]];
    const Plan plan{study.model, study.cluster, study.job, candidate.layout};
    predictions[i] = replayed(evaluator, plan, semantics, candidate.slots.evidence);
  });
  return predictions;
}

constexpr std::size_t kWider = 8; ///< candidates by which the set that is replayed grows

/// Candidates that are replayed, or predicted in full, in any case.
std::size_t enough_refined(const SearchOptions& options) {
  return static_cast<std::size_t>(std::max({1, options.top, options.refine ? options.refine_replay : 0}));
}

Result<void> simulate_best(const Study& study, const Semantics& semantics, const Evaluator& evaluator,
                           const SearchOptions& options, SearchResult& result) {
  const std::size_t count =
      std::min(result.ranked.size(), static_cast<std::size_t>(std::max(0, options.refine_simgrid)));
  if (count == 0 || stopped(options)) return {};
  if (const int devices = device_count(study.cluster); devices > kMostSimulated) {
    for (std::size_t i = 0; i < count; ++i)
      result.ranked[i].prediction.notes.push_back(
          "not simulated on the network: " + std::to_string(devices) + " devices, the search simulates up to " +
          std::to_string(kMostSimulated) + " (foretrain predict --engine simgrid does it all the same)");
    return {};
  }
  const auto plan_of = [&](std::size_t i) {
    return Plan{study.model, study.cluster, study.job, result.ranked[i].layout};
  };
  std::vector<SimulationRequest> requests; // one or two for each candidate
  for (std::size_t i = 0; i < count; ++i) {
    const Plan plan = plan_of(i);
    const ShortRuns runs = short_runs(plan);
    if (runs.few > 0)
      requests.push_back(
          request_of(shortened(plan, runs.few), options.data, static_cast<std::int64_t>(requests.size())));
    requests.push_back(request_of(runs.few > 0 ? shortened(plan, runs.more) : plan, options.data,
                                  static_cast<std::int64_t>(requests.size())));
  }
  WorkerPool pool({options.worker.empty() ? worker_beside_program() : std::filesystem::path(options.worker),
                   std::max(1, options.jobs)});
  std::int64_t done = 0;
  const auto report = [&](std::size_t) {
    if (options.progress)
      options.progress({"simgrid", ++done, static_cast<std::int64_t>(requests.size()), result.fits});
  };
  std::vector<Result<Simulation>> replies = pool.run(requests, options.stop, report);
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Plan plan = plan_of(i);
    const ShortRuns runs = short_runs(plan);
    const Result<Simulation>* shorter = runs.few > 0 ? &replies[next++] : nullptr;
    Result<Simulation>& run = replies[next++];
    const Error* error = !run ? &run.error() : shorter && !*shorter ? &shorter->error() : nullptr;
    if (error) {
      // A worker that dies costs one candidate its simulation; the replay stands, and the plan says so.
      if (error->kind != Error::Kind::cancelled)
        result.ranked[i].prediction.notes.push_back("not simulated on the network: " + to_string(*error));
      continue;
    }
    if (shorter) continue_by(*run, **shorter, runs.rounds);
    const Program program = lower(plan, semantics);
    result.ranked[i].prediction = from_simulation(evaluator, plan, semantics, program, *run, Engine::simgrid,
                                                  result.ranked[i].prediction.evidence);
  }
  std::stable_sort(result.ranked.begin(), result.ranked.begin() + static_cast<std::ptrdiff_t>(count),
                   [&](const Candidate& a, const Candidate& b) {
                     return value_of(study.objective, a.prediction) < value_of(study.objective, b.prediction);
                   });
  return {};
}

} // namespace

std::size_t most_refined(const SearchOptions& options) {
  const std::size_t enough = enough_refined(options);
  return options.refine ? (enough + kWider - 1) / kWider * kWider + enough : enough;
}

std::size_t exact_best(const SearchOptions& options) {
  const std::int64_t asked = options.best > 0 ? options.best : options.keep;
  return std::max(static_cast<std::size_t>(std::max<std::int64_t>(0, asked)), most_refined(options));
}

Result<void> refine(const Study& study, const Semantics& semantics, const Filter& filter, const Evaluator& evaluator,
                    const SearchOptions& options, SearchResult& result) {
  // The number replayed grows while slot times are within the bound of the best, to twice what was asked for at most.
  const std::size_t enough = enough_refined(options);
  double best = 0;
  std::size_t tried = 0;
  Admitted queue(study, filter, evaluator, options, result.kept);
  while (const auto next = queue.peek()) {
    const bool widen = options.refine && tried > 0 && study.objective != Objective::memory_headroom &&
                       tried < most_refined(options) && may_beat(result.kept[*next], best, semantics);
    if (stopped(options) || (tried >= enough && !widen)) break;
    // How many are tried does not depend on the number of jobs.
    const std::size_t left = tried < enough ? enough - tried : kWider;
    const std::vector<std::size_t> batch =
        queue.take(std::min(left, static_cast<std::size_t>(std::max(8, options.jobs * 4))));
    if (!options.refine) {
      for (const std::size_t i : batch) {
        Candidate candidate = result.kept[i];
        candidate.prediction = evaluator.predict(candidate.layout);
        result.ranked.push_back(std::move(candidate));
      }
    } else {
      std::vector<Result<Prediction>> predictions = replay_all(study, semantics, evaluator, options, result, batch);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        Result<Prediction>& prediction = predictions[i];
        if (!prediction && prediction.error().kind == Error::Kind::cancelled) continue;
        if (!prediction) return tl::unexpected<Error>(prediction.error());
        Candidate candidate = result.kept[batch[i]];
        candidate.prediction = std::move(*prediction);
        candidate.refined = true;
        if (candidate.prediction.verdict != Verdict::fits) continue;
        best = best == 0 ? candidate.prediction.step_time.value : std::min(best, candidate.prediction.step_time.value);
        FieldRow row{study.job, study.cluster, candidate.layout, &candidate.slots, &candidate.prediction};
        row.provisional = options.refine_simgrid > 0;
        if (!filter.empty() && filter.test(row) == Truth::no) continue;
        result.ranked.push_back(std::move(candidate));
      }
    }
    tried += batch.size();
    if (options.progress && options.refine)
      options.progress({"replay", static_cast<std::int64_t>(tried), static_cast<std::int64_t>(std::max(enough, tried)),
                        result.fits});
  }
  // Interrupted before anything was replayed: what the search found is still worth showing.
  if (result.ranked.empty() && !result.kept.empty()) {
    Candidate candidate = result.kept.front();
    candidate.prediction = evaluator.predict(candidate.layout);
    result.ranked.push_back(std::move(candidate));
  }
  std::stable_sort(result.ranked.begin(), result.ranked.end(), [&](const Candidate& a, const Candidate& b) {
    const double va = value_of(study.objective, a.prediction);
    const double vb = value_of(study.objective, b.prediction);
    return va != vb ? va < vb : device_of(a.prediction) < device_of(b.prediction);
  });
  if (result.ranked.size() > static_cast<std::size_t>(options.top))
    result.ranked.resize(static_cast<std::size_t>(options.top));
  return simulate_best(study, semantics, evaluator, options, result);
}

Result<Prediction> predict_with(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics, Engine engine,
                                const std::string& worker, const std::string& data) {
  const Evidence evidence = evaluator.worker().evaluate(plan.layout).evidence;
  switch (engine) {
  case Engine::slots:
    return evaluator.predict(plan.layout);
  case Engine::replay:
    return replayed(evaluator, plan, semantics, evidence);
  case Engine::simgrid:
    break;
  }
  FORETRAIN_TRY(Simulated simulated, simulate_with(evaluator, plan, semantics, worker, data, nullptr));
  return std::move(simulated.prediction);
}

Result<Simulated> simulate_with(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics,
                                const std::string& worker, const std::string& data, const std::atomic<bool>* stop) {
  WorkerPool pool({worker.empty() ? worker_beside_program() : std::filesystem::path(worker), 1});
  std::vector<Result<Simulation>> runs = pool.run({request_of(plan, data, 0)}, stop);
  if (!runs[0]) return tl::unexpected<Error>(runs[0].error());
  const Evidence evidence = evaluator.worker().evaluate(plan.layout).evidence;
  const Program program = lower(plan, semantics);
  Simulated simulated;
  simulated.prediction = from_simulation(evaluator, plan, semantics, program, *runs[0], Engine::simgrid, evidence);
  simulated.run = std::move(*runs[0]);
  return simulated;
}

/// The framework on this cluster's devices; without a data folder as it is.
Result<OnDevice> adapted(const Semantics& framework, const Calibration& calibration, const ClusterSpec& cluster,
                         const std::string& data) {
  if (data.empty()) return OnDevice{framework, calibration};
  return on_device(framework, calibration, cluster.device, data);
}

Result<Simulated> simulate(const Plan& plan, const Semantics& framework, const Calibration& calibrated,
                           const std::string& worker, const std::string& data, const std::atomic<bool>* stop) {
  FORETRAIN_TRY(const OnDevice own, adapted(framework, calibrated, plan.cluster, data));
  FORETRAIN_TRY(const Evaluator evaluator,
                Evaluator::make(plan.model, plan.cluster, plan.job, own.semantics, own.calibration));
  const RuleInput input{plan.model, plan.cluster, plan.job, own.semantics, plan.layout, device_count(plan.cluster)};
  const std::vector<Rejection> rejections = all_rejections(input);
  if (!rejections.empty()) return fail("plan", rejections.front().reason, "predict it: all reasons are listed");
  FORETRAIN_TRY(Simulated simulated, simulate_with(evaluator, plan, own.semantics, worker, data, stop));
  if (!data.empty()) {
    FORETRAIN_TRY(const Intervals intervals, read_intervals(data));
    set_intervals(simulated.prediction, intervals);
  }
  return simulated;
}

} // namespace foretrain
