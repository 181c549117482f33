#include "planner/refine.h"

#include <algorithm>
#include <thread>

#include "core/program/lower.h"
#include "core/program/memory.h"
#include "planner/finish.h"
#include "simulator/pool.h"
#include "simulator/launches.h"
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
  case Objective::cost: return prediction.step_time.value;
  case Objective::memory_headroom: return static_cast<double>(device_of(prediction).value);
  }
  return prediction.step_time.value;
}

/// Puts an op-level run into a prediction: its time and parts, and the memory of the same Program.
Prediction from_simulation(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics, const Program& program,
                           const Simulation& run, Engine engine, Evidence evidence) {
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
  for (const Role& role : program.roles) base.memory.push_back(stage_memory(program, role));
  finish_prediction(base, plan, semantics, evaluator.capacity());
  return base;
}

/// `plan` with as many micro-batches.
Plan shortened(Plan plan, std::int64_t micro_batches) {
  plan.job.global_batch = micro_batches * plan.layout.micro_batch * plan.layout.dp();
  return plan;
}

/// `b` went on from `a` for `rounds` more of what lies between them.
void continue_by(Simulation& b, const Simulation& a, double rounds) {
  b.step_time += (b.step_time - a.step_time) * rounds;
  for (std::size_t p = 0; p < b.time.size(); ++p) b.time[p] += (b.time[p] - a.time[p]) * rounds;
  for (std::size_t s = 0; s < b.stages.size(); ++s) {
    StageRun& stage = b.stages[s];
    const StageRun& before = a.stages[s];
    stage.compute += (stage.compute - before.compute) * rounds;
    for (std::size_t p = 0; p < stage.parts.size(); ++p) stage.parts[p] += (stage.parts[p] - before.parts[p]) * rounds;
  }
}

/// A full pipeline repeats itself with every `pp` micro-batches (see Evaluator): two short runs one round apart stand for
/// a long one.
struct ShortRuns {
  std::int64_t few = 0;  ///< micro-batches of the shorter run; 0: the step is short enough to run whole
  std::int64_t more = 0; ///< of the longer one
  double rounds = 0;     ///< that the longer one goes on for
};
ShortRuns short_runs(const Plan& plan) {
  constexpr int kRounds = 3;
  const std::int64_t p = plan.layout.pp;
  const std::int64_t m = micro_batches_of(plan.job, plan.layout);
  if (m <= 3 * kRounds * p) return {};
  const std::int64_t few = (kRounds - 1) * p + m % p;
  return {few, few + p, static_cast<double>((m - few - p) / p)};
}

/// Op replay of a step.
Result<Simulation> replay_step(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics, const Program& program) {
  const ShortRuns runs = short_runs(plan);
  if (runs.few == 0) return replay(program, evaluator.cost(), semantics);
  FORETRAIN_TRY(const Simulation a, replay(lower(shortened(plan, runs.few), semantics), evaluator.cost(), semantics));
  FORETRAIN_TRY(Simulation b, replay(lower(shortened(plan, runs.more), semantics), evaluator.cost(), semantics));
  continue_by(b, a, runs.rounds);
  return b;
}

Result<Prediction> replayed(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics, Evidence evidence) {
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

bool stopped(const SearchOptions& options) { return options.stop && options.stop->load(std::memory_order_relaxed); }

/// Replays candidates [first, last) on `jobs` threads; results do not depend on their number.
std::vector<Result<Prediction>> replay_range(const Study& study, const Semantics& semantics, const Evaluator& evaluator,
                                             const SearchOptions& options, const SearchResult& result, std::size_t first, std::size_t last) {
  std::vector<Result<Prediction>> predictions(last - first, Result<Prediction>(Prediction{}));
  std::atomic<std::size_t> next{first};
  const auto work = [&] {
    for (std::size_t i = next++; i < last; i = next++) {
      if (stopped(options)) {
        Error error;
        error.kind = Error::Kind::cancelled;
        error.message = "interrupted";
        predictions[i - first] = tl::unexpected<Error>(error);
        continue;
      }
      const Plan plan{study.model, study.cluster, study.job, result.kept[i].layout};
      predictions[i - first] = replayed(evaluator, plan, semantics, result.kept[i].slots.evidence);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return predictions;
}

Result<void> simulate_best(const Study& study, const Semantics& semantics, const Evaluator& evaluator, const SearchOptions& options, SearchResult& result) {
  const std::size_t count = std::min(result.ranked.size(), static_cast<std::size_t>(std::max(0, options.refine_simgrid)));
  if (count == 0 || stopped(options)) return {};
  const auto plan_of = [&](std::size_t i) { return Plan{study.model, study.cluster, study.job, result.ranked[i].layout}; };
  std::vector<SimulationRequest> requests; // one or two for each candidate
  for (std::size_t i = 0; i < count; ++i) {
    const Plan plan = plan_of(i);
    const ShortRuns runs = short_runs(plan);
    if (runs.few > 0) requests.push_back(request_of(shortened(plan, runs.few), options.data, static_cast<std::int64_t>(requests.size())));
    requests.push_back(request_of(runs.few > 0 ? shortened(plan, runs.more) : plan, options.data, static_cast<std::int64_t>(requests.size())));
  }
  WorkerPool pool({options.worker.empty() ? worker_beside_program() : std::filesystem::path(options.worker), std::max(1, options.jobs)});
  std::int64_t done = 0;
  const auto report = [&](std::size_t) {
    if (options.progress) options.progress({"simgrid", ++done, static_cast<std::int64_t>(requests.size()), result.fits});
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
      if (error->kind != Error::Kind::cancelled) result.ranked[i].prediction.notes.push_back("not simulated on the network: " + to_string(*error));
      continue;
    }
    if (shorter) continue_by(*run, **shorter, runs.rounds);
    const Program program = lower(plan, semantics);
    result.ranked[i].prediction = from_simulation(evaluator, plan, semantics, program, *run, Engine::simgrid, result.ranked[i].prediction.evidence);
  }
  std::stable_sort(result.ranked.begin(), result.ranked.begin() + static_cast<std::ptrdiff_t>(count),
                   [&](const Candidate& a, const Candidate& b) { return value_of(study.objective, a.prediction) < value_of(study.objective, b.prediction); });
  return {};
}

} // namespace

Result<void> refine(const Study& study, const Semantics& semantics, const Evaluator& evaluator, const SearchOptions& options, SearchResult& result) {
  // The number replayed grows while slot times are within the bound of the best, to twice what was asked for at most.
  const std::size_t wanted = options.refine ? static_cast<std::size_t>(std::max(options.refine_replay, options.top)) : 0;
  double best = 0;
  std::size_t at = 0;
  while (at < result.kept.size() && !stopped(options)) {
    const bool widen = options.refine && at > 0 && study.objective != Objective::memory_headroom &&
                       result.kept[at].slots.step_seconds <= best * (1 + kSlotOpBound) && at < 2 * wanted;
    if (at >= std::max<std::size_t>(wanted, static_cast<std::size_t>(options.top)) && !widen) break;
    const std::size_t until = std::min(result.kept.size(), at + static_cast<std::size_t>(std::max(8, options.jobs * 4)));
    if (!options.refine) {
      for (std::size_t i = at; i < until; ++i) {
        Candidate candidate = result.kept[i];
        candidate.prediction = evaluator.predict(candidate.layout);
        result.ranked.push_back(std::move(candidate));
      }
    } else {
      std::vector<Result<Prediction>> predictions = replay_range(study, semantics, evaluator, options, result, at, until);
      for (std::size_t i = at; i < until; ++i) {
        Result<Prediction>& prediction = predictions[i - at];
        if (!prediction && prediction.error().kind == Error::Kind::cancelled) continue;
        if (!prediction) return tl::unexpected<Error>(prediction.error());
        Candidate candidate = result.kept[i];
        candidate.prediction = std::move(*prediction);
        candidate.refined = true;
        if (candidate.prediction.verdict != Verdict::fits) continue;
        best = best == 0 ? candidate.prediction.step_time.value : std::min(best, candidate.prediction.step_time.value);
        result.ranked.push_back(std::move(candidate));
      }
    }
    at = until;
    if (options.progress && options.refine)
      options.progress({"replay", static_cast<std::int64_t>(at), static_cast<std::int64_t>(std::max(wanted, at)), result.fits});
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
  if (result.ranked.size() > static_cast<std::size_t>(options.top)) result.ranked.resize(static_cast<std::size_t>(options.top));
  return simulate_best(study, semantics, evaluator, options, result);
}

Result<Prediction> predict_with(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics, Engine engine, const std::string& worker, const std::string& data) {
  const Evidence evidence = evaluator.worker().evaluate(plan.layout).evidence;
  switch (engine) {
  case Engine::slots: return evaluator.predict(plan.layout);
  case Engine::replay: return replayed(evaluator, plan, semantics, evidence);
  case Engine::simgrid: break;
  }
  WorkerPool pool({worker.empty() ? worker_beside_program() : std::filesystem::path(worker), 1});
  const std::vector<Result<Simulation>> runs = pool.run({request_of(plan, data, 0)});
  if (!runs[0]) return tl::unexpected<Error>(runs[0].error());
  const Program program = lower(plan, semantics);
  return from_simulation(evaluator, plan, semantics, program, *runs[0], Engine::simgrid, evidence);
}

} // namespace foretrain
