#include "planner/search.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "planner/explain.h"
#include "planner/layouts.h"
#include "planner/rules/rule.h"
#include "tests/cases/cases.h"

namespace foretrain {
namespace {

using namespace cases;

Study small_study() {
  const Plan plan = plan_of("llama3.2-1b", "dgx-h100", 8, 4096, 32);
  return Study{plan.model, plan.cluster, plan.job, {}, Objective::step_time, ""};
}

SearchResult searched(const Study& study, SearchOptions options) {
  const Semantics semantics = data().semantics(study.job.semantics).value();
  const Calibration calibration = load_calibration(data().root, study.cluster.device).value();
  options.refine_replay = 5;
  auto result = search(study, semantics, calibration, options);
  EXPECT_TRUE(result) << (result ? "" : to_string(result.error()));
  return result ? std::move(*result) : SearchResult{};
}

std::int64_t sum(const std::map<std::string, std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                         [](std::int64_t a, const auto& entry) { return a + entry.second; });
}

TEST(Search, GivesTheSameForAnyNumberOfJobs) {
  SearchOptions one;
  SearchOptions two;
  two.jobs = 2;
  const SearchResult a = searched(small_study(), one);
  const SearchResult b = searched(small_study(), two);
  EXPECT_EQ(a.enumerated, b.enumerated);
  EXPECT_EQ(a.legal, b.legal);
  EXPECT_EQ(a.evaluated, b.evaluated);
  EXPECT_EQ(a.fits, b.fits);
  EXPECT_EQ(a.pruned, b.pruned);
  EXPECT_EQ(a.rejected, b.rejected);
  EXPECT_EQ(a.pareto, b.pareto);
  EXPECT_EQ(a.tied_with_best, b.tied_with_best);
  EXPECT_EQ(a.preferred, b.preferred);
  ASSERT_EQ(a.ranked.size(), b.ranked.size());
  for (std::size_t i = 0; i < a.ranked.size(); ++i) {
    EXPECT_EQ(a.ranked[i].layout, b.ranked[i].layout) << i;
    EXPECT_EQ(a.ranked[i].prediction, b.ranked[i].prediction) << i;
  }
  ASSERT_EQ(a.kept.size(), b.kept.size());
  for (std::size_t i = 0; i < a.kept.size(); ++i) EXPECT_EQ(a.kept[i].layout, b.kept[i].layout) << i;
  ASSERT_EQ(a.near_misses.size(), b.near_misses.size());
  for (std::size_t i = 0; i < a.near_misses.size(); ++i) {
    EXPECT_EQ(a.near_misses[i].layout, b.near_misses[i].layout) << i;
    EXPECT_EQ(a.near_misses[i].rejection.nearest, b.near_misses[i].rejection.nearest) << i;
    EXPECT_FALSE(a.near_misses[i].rejection.nearest.empty()) << describe(a.near_misses[i].layout);
  }
}

TEST(Search, ShowsTheBestSoFarWhileItRuns) {
  const Plan plan = plan_of("llama3-70b", "dgx-h100", 64, 8192, 64); // long enough for several reports
  const Study study{plan.model, plan.cluster, plan.job, {}, Objective::step_time, ""};
  SearchOptions options;
  options.jobs = 2;
  options.found_limit = 30;
  std::vector<SearchResult> reports;
  std::atomic<int> inside{0};
  options.found = [&](const SearchResult& found) {
    EXPECT_EQ(inside++, 0) << "one thread at a time";
    reports.push_back(found);
    --inside;
  };
  const SearchResult result = searched(study, options);
  ASSERT_GE(reports.size(), 2U);
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const std::vector<Candidate>& best = reports[r].kept;
    EXPECT_EQ(reports[r].enumerated, result.enumerated);
    EXPECT_TRUE(std::is_sorted(best.begin(), best.end(), [](const auto& a, const auto& b) {
      return a.slots.step_seconds < b.slots.step_seconds;
    }));
    ASSERT_FALSE(best.empty());
    if (r + 1 < reports.size()) {
      EXPECT_LE(best.size(), 30U);
    }
    if (r > 0) {
      EXPECT_LE(best.front().slots.step_seconds, reports[r - 1].kept.front().slots.step_seconds)
          << "it only gets better";
    }
  }
  ASSERT_EQ(reports.back().kept.size(), result.kept.size()) << "at last all that is kept";
  EXPECT_EQ(reports.back().kept.front().layout, result.kept.front().layout);
}

TEST(Search, CountsEveryLayoutOnce) {
  const Study study = small_study();
  const SearchResult result = searched(study, {});
  const LayoutSpace space(study, data().semantics(study.job.semantics).value());
  EXPECT_EQ(result.enumerated, space.size());
  std::int64_t visited = 0;
  for (std::size_t group = 0; group < space.groups(); ++group) {
    std::int64_t inside = 0;
    space.visit_group(group, [&](const Layout& layout) {
      EXPECT_EQ(layout.world(), 8);
      ++inside;
      return true;
    });
    EXPECT_EQ(inside, space.group_size(group));
    visited += inside;
  }
  EXPECT_EQ(visited, space.size());
  const auto memory = result.rejected.find("out-of-memory");
  const std::int64_t full = memory == result.rejected.end() ? 0 : memory->second;
  EXPECT_EQ(result.enumerated, result.legal + sum(result.rejected) - full);
  EXPECT_EQ(result.legal, result.fits + full);
  EXPECT_TRUE(result.complete);
}

// Branches are judged whole: what is left is what a look at every layout leaves.
TEST(Search, LeavesOutWhatNoLayoutWouldPass) {
  for (const char* framework : {"megatron-core", "torchtitan"}) {
    Study study = small_study();
    study.job.semantics = framework;
    study.job.global_batch = 24;
    study.job.sequence_length = 4100; // some parts of it are not whole
    SearchOptions options;
    options.refine = false;
    options.near_misses = 0;
    const SearchResult result = searched(study, options);
    const Semantics semantics = data().semantics(framework).value();
    const LayoutSpace space(study, semantics);
    std::int64_t legal = 0;
    std::map<std::string, std::int64_t> rejected;
    for (std::size_t group = 0; group < space.groups(); ++group)
      space.visit_group(group, [&](const Layout& layout) {
        const RuleInput input{study.model, study.cluster, study.job, semantics, layout, 8};
        const std::optional<Rejection> rejection = first_rejection(input);
        if (!rejection)
          ++legal;
        else
          ++rejected[rejection->rule];
        return true;
      });
    EXPECT_TRUE(result.pruned.empty());
    EXPECT_EQ(result.legal, legal);
    EXPECT_EQ(result.evaluated, legal);
    EXPECT_GE(rejected.size(), 2u);
    for (const auto& [rule, count] : result.rejected)
      if (rule != "out-of-memory") {
        EXPECT_TRUE(rejected.contains(rule)) << rule;
      }
  }
}

TEST(Search, CountsWhatDegreesLeave) {
  Study study = small_study();
  const Semantics semantics = data().semantics(study.job.semantics).value();
  const SpaceSize all = space_size(study, semantics).value();
  EXPECT_EQ(all.enumerated, LayoutSpace(study, semantics).size());
  EXPECT_LE(all.left, all.enumerated);
  study.where = "tp == 2 and memory_gib < 70";
  const SpaceSize some = space_size(study, semantics).value();
  EXPECT_EQ(some.enumerated, all.enumerated);
  EXPECT_LT(some.left, all.left);
  EXPECT_GT(some.left, 0);
  study.where = "tp ==";
  EXPECT_FALSE(space_size(study, semantics));
}

TEST(Search, PositionsNameTheirLayouts) {
  const Study study = small_study();
  const LayoutSpace space(study, data().semantics(study.job.semantics).value());
  for (std::size_t group = 0; group < space.groups(); ++group) {
    std::vector<Layout> visited;
    std::vector<LayoutPosition> positions;
    space.visit_group(group, [&](const Layout& layout) {
      positions.push_back({group, static_cast<std::int64_t>(visited.size())});
      visited.push_back(layout);
      return true;
    });
    EXPECT_EQ(space.at(positions), visited);
  }
}

TEST(Search, RanksWhatFitsByItsTime) {
  const SearchResult result = searched(small_study(), {});
  ASSERT_FALSE(result.ranked.empty());
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    EXPECT_EQ(result.ranked[i].prediction.verdict, Verdict::fits);
    if (i > 0 && result.ranked[i].refined == result.ranked[i - 1].refined) {
      EXPECT_GE(result.ranked[i].prediction.step_time, result.ranked[i - 1].prediction.step_time) << i;
    }
  }
  EXPECT_FALSE(result.pareto.empty());
}

// Nothing that the whole space holds is better than what the search names first.
TEST(Search, FindsTheBestOfTheSpace) {
  const Study study = small_study();
  const Semantics semantics = data().semantics(study.job.semantics).value();
  const Calibration calibration = load_calibration(data().root, study.cluster.device).value();
  SearchOptions options;
  options.refine = false;
  const SearchResult result = searched(study, options);
  const Evaluator evaluator =
      std::move(*Evaluator::make(study.model, study.cluster, study.job, semantics, calibration));
  Evaluator::Worker worker = evaluator.worker();
  double best = 1e300;
  const LayoutSpace space(study, semantics);
  for (std::size_t group = 0; group < space.groups(); ++group)
    space.visit_group(group, [&](const Layout& layout) {
      const RuleInput input{study.model, study.cluster, study.job, semantics, layout, 8};
      if (first_rejection(input)) return true;
      const Evaluation evaluation = worker.evaluate(layout);
      if (Bytes(evaluation.device_bytes) <= *evaluator.capacity()) best = std::min(best, evaluation.step_seconds);
      return true;
    });
  ASSERT_FALSE(result.ranked.empty());
  EXPECT_EQ(result.ranked.front().slots.step_seconds, best) << describe(result.ranked.front().layout);
}

// What only a full prediction knows is asked of every candidate that is kept: the layouts that are slow enough are far
// from the best ones.
TEST(Search, AFilterOnFiguresOfAFullPredictionSeesMoreThanTheBest) {
  Study study = small_study();
  study.space.cp = {1};
  study.space.micro_batch = {1};
  const Semantics semantics = data().semantics(study.job.semantics).value();
  const Calibration calibration = load_calibration(data().root, study.cluster.device).value();
  SearchOptions options;
  options.refine = false;
  options.jobs = 2;
  const SearchResult all = searched(study, options);
  const Evaluator evaluator =
      std::move(*Evaluator::make(study.model, study.cluster, study.job, semantics, calibration));
  constexpr double kMuch = 1.5;
  const auto computes = [](const Prediction& prediction) {
    return prediction.time[static_cast<std::size_t>(TimePart::compute)].value;
  };
  const double limit = kMuch * computes(all.ranked.front().prediction);
  const auto slow = [&](const Candidate& candidate) { return computes(evaluator.predict(candidate.layout)) > limit; };
  const auto expected = std::find_if(all.kept.begin(), all.kept.end(), slow); // by going through them
  ASSERT_NE(expected, all.kept.end());
  EXPECT_LE(computes(all.ranked.back().prediction), limit) << "the best alone would not do";
  study.where = "compute_s > " + std::to_string(limit);
  options.top = 3;
  const SearchResult slots = searched(study, options);
  ASSERT_EQ(slots.ranked.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_GT(computes(slots.ranked[i].prediction), limit);
  EXPECT_EQ(slots.ranked.front().layout, expected->layout);
  options.refine = true;
  options.refine_simgrid = 0;
  const SearchResult replayed = searched(study, options);
  ASSERT_FALSE(replayed.ranked.empty());
  for (const Candidate& candidate : replayed.ranked) {
    EXPECT_EQ(candidate.prediction.engine, Engine::replay);
    EXPECT_GT(computes(candidate.prediction), limit);
  }
}

// A simulation of a million devices takes hours: the replay stands, and the plan says so.
TEST(Search, DoesNotSimulateClustersThatTakeHours) {
  const Plan plan = plan_of("llama3.2-1b", "dgx-h100", 1'000'000, 2048, 1'000'000);
  const Study study{plan.model, plan.cluster, plan.job, {}, Objective::step_time, "tp == 8 and pp == 1 and cp == 1"};
  SearchOptions options;
  options.top = 3;
  options.refine_simgrid = 2;
  const SearchResult result = searched(study, options);
  ASSERT_EQ(result.ranked.size(), 3u);
  EXPECT_EQ(result.ranked[0].prediction.engine, Engine::replay);
  ASSERT_EQ(result.ranked[1].prediction.notes.size(), 1u);
  EXPECT_NE(result.ranked[1].prediction.notes[0].find("not simulated"), std::string::npos);
  EXPECT_TRUE(result.ranked[2].prediction.notes.empty());
}

TEST(Search, AnInterruptDuringRefinementIsReported) {
  std::atomic<bool> stop{false};
  SearchOptions options;
  options.refine_simgrid = 0;
  options.stop = &stop;
  options.progress = [&stop](const Progress& progress) {
    if (progress.phase == "replay") stop = true;
  };
  const SearchResult result = searched(small_study(), options);
  EXPECT_TRUE(stop) << "something was refined";
  EXPECT_FALSE(result.complete);
  EXPECT_FALSE(result.ranked.empty());
}

TEST(Search, StopsWhenAsked) {
  const std::atomic<bool> stop{true};
  SearchOptions options;
  options.stop = &stop;
  const SearchResult result = searched(small_study(), options);
  EXPECT_FALSE(result.complete);
  EXPECT_LT(result.evaluated, result.enumerated);
}

} // namespace
} // namespace foretrain
