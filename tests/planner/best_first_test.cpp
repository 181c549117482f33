#include "planner/best_first.h"

#include <cstdlib>
#include <numeric>

#include <gtest/gtest.h>

#include "core/spec/names.h"
#include "planner/explain.h"
#include "planner/search.h"
#include "tests/planner/samples.h"

namespace foretrain {
namespace {

using namespace samples;

/// Every family of semantics, dense layers and experts, one stage and many, split backwards, sharded parameters.
std::vector<Setting> settings() {
  std::vector<Setting> list = {setting_of("llama3.2-1b", "dgx-h100", 8, 4096, 32, "megatron-core"),
                               setting_of("llama3-8b", "dgx-h100", 8, 8192, 16, "torchtitan"),
                               setting_of("llama3-8b", "dgx-h100", 16, 4096, 64, "deepspeed"),
                               setting_of("llama3-8b", "dgx-h100", 8, 4096, 12, "megatron-zb"),
                               setting_of("deepseek-v2-lite", "dgx-h100", 4, 4096, 4, "foretrain"),
                               setting_of("llama2-7b", "aws-p4d", 16, 4096, 64, "nanotron")};
  if (std::getenv("FORETRAIN_MIDDLE_SPACES")) { // minutes
    list.push_back(setting_of("gpt3-175b", "dgx-a100-80gb", 64, 2048, 64, "megatron-deepspeed"));
    list.push_back(setting_of("llama3-8b", "hgx-h200", 16, 8192, 32, "nemo"));
    list.push_back(setting_of("llama3-70b", "dgx-h100", 64, 8192, 256, "megatron-core"));
    list.push_back(setting_of("mixtral-8x7b", "dgx-h100", 16, 4096, 64, "megatron-core"));
    list.push_back(setting_of("deepseek-v2-lite", "gb200-nvl72", 72, 4096, 144, "torchtitan"));
  }
  return list;
}

SearchResult searched(const Setting& s, Extent extent, Objective objective, const std::string& where,
                      SearchOptions options) {
  Study study{s.plan.model, s.plan.cluster, s.plan.job, {}, objective, where};
  if (where.find("compute_s") == std::string::npos) // a full prediction of every layout takes long enough without
    study.space.overlap_tp = {};                    // both, where the framework has it
  if (study.model.moe &&
      !std::getenv("FORETRAIN_MIDDLE_SPACES")) { // every module that can be recomputed, in every combination
    study.space.cp = {1};
    study.space.micro_batch = {1, 4};
    study.space.chunks = {3};
  }
  options.extent = extent;
  options.refine = false;
  auto result = search(study, s.semantics, s.calibration, options);
  EXPECT_TRUE(result) << (result ? "" : to_string(result.error()));
  return result ? std::move(*result) : SearchResult{};
}

std::int64_t sum(const std::map<std::string, std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                         [](std::int64_t a, const auto& entry) { return a + entry.second; });
}

std::string name_of(const Setting& s) {
  return s.plan.job.semantics + ' ' + s.plan.model.name;
}

void expect_same(const std::vector<Candidate>& a, const std::vector<Candidate>& b, std::size_t count,
                 const std::string& name) {
  ASSERT_GE(a.size(), count) << name;
  ASSERT_GE(b.size(), count) << name;
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(a[i].layout, b[i].layout) << name << " at " << i << ": " << describe(a[i].layout) << " against "
                                        << describe(b[i].layout);
    EXPECT_EQ(a[i].slots.step_seconds, b[i].slots.step_seconds) << name << " at " << i;
  }
}

TEST(BestFirst, NamesTheSameBestAsALookAtEveryLayout) {
  struct Asked {
    Objective objective;
    const char* where;
  };
  const std::vector<Asked> asked = {{Objective::step_time, ""},
                                    {Objective::memory_headroom, ""},
                                    {Objective::step_time, "memory_gib < 60 and tp >= 2"},
                                    {Objective::step_time, "compute_s > 0.1"}};
  for (const Setting& s : settings())
    for (const auto& [objective, where] : asked) {
      if (s.plan.job.semantics != "megatron-core" && where == asked.back().where)
        continue; // a full prediction of every layout
      const std::string name = name_of(s) + " by " + std::string(id_of(objective)) + " where " + where;
      SearchOptions options;
      options.top = 30;
      options.best = 30;
      options.front = false;
      options.jobs = 2;
      const SearchResult all = searched(s, Extent::exhaustive, objective, where, options);
      const SearchResult some = searched(s, Extent::best, objective, where, options);
      EXPECT_TRUE(all.exhaustive);
      EXPECT_FALSE(some.exhaustive);
      EXPECT_LE(some.evaluated, all.evaluated) << name;
      EXPECT_EQ(some.enumerated, some.legal + sum(some.rejected) + sum(some.pruned) + some.fits - some.evaluated)
          << name;
      ASSERT_EQ(some.ranked.size(), all.ranked.size()) << name;
      for (std::size_t i = 0; i < all.ranked.size(); ++i) {
        EXPECT_EQ(some.ranked[i].layout, all.ranked[i].layout) << name << " at " << i;
        EXPECT_EQ(some.ranked[i].prediction, all.ranked[i].prediction) << name << " at " << i;
      }
      EXPECT_EQ(some.pareto, all.pareto) << name;
      EXPECT_EQ(some.tied_with_best, all.tied_with_best) << name;
      EXPECT_EQ(some.preferred, all.preferred) << name;
    }
}

// What a store or a view keeps: as many of the best, and every layout that no other beats in both time and memory.
TEST(BestFirst, KeepsTheSameBestAndTheSameFront) {
  for (const Setting& s : settings()) {
    SearchOptions options;
    options.keep = 200;
    options.jobs = 2;
    const SearchResult all = searched(s, Extent::exhaustive, Objective::step_time, "", options);
    const SearchResult some = searched(s, Extent::best, Objective::step_time, "", options);
    ASSERT_EQ(some.kept.size(), all.kept.size()) << name_of(s);
    expect_same(some.kept, all.kept, all.kept.size(), name_of(s));
    EXPECT_GT(sum(some.pruned), sum(all.pruned)) << name_of(s);
  }
}

TEST(BestFirst, CountsDoNotDependOnJobs) {
  const Setting s = settings().front();
  SearchOptions one;
  one.best = 20;
  one.top = 20;
  SearchOptions three = one;
  three.jobs = 3;
  const SearchResult a = searched(s, Extent::best, Objective::step_time, "", one);
  const SearchResult b = searched(s, Extent::best, Objective::step_time, "", three);
  EXPECT_EQ(a.legal, b.legal);
  EXPECT_EQ(a.evaluated, b.evaluated);
  EXPECT_EQ(a.fits, b.fits);
  EXPECT_EQ(a.pruned, b.pruned);
  EXPECT_EQ(a.rejected, b.rejected);
  ASSERT_EQ(a.kept.size(), b.kept.size());
  expect_same(a.kept, b.kept, a.kept.size(), name_of(s));
  ASSERT_EQ(a.near_misses.size(), b.near_misses.size());
  for (std::size_t i = 0; i < a.near_misses.size(); ++i)
    EXPECT_EQ(a.near_misses[i].layout, b.near_misses[i].layout) << i;
}

TEST(BestFirst, WhatWasSampledStandsWhenItIsStopped) {
  const Setting s = settings().front();
  std::atomic<bool> stop{false};
  SearchOptions options;
  options.stop = &stop;
  options.progress = [&stop](const Progress& progress) {
    if (progress.phase == "floors" && progress.done * 2 > progress.total) stop = true;
  };
  const SearchResult result = searched(s, Extent::best, Objective::step_time, "", options);
  if (stop) {
    EXPECT_FALSE(result.complete);
  } else {
    EXPECT_TRUE(result.complete);
  }
  EXPECT_FALSE(result.kept.empty());
}

// A layout is never faster or smaller than its floor, alone or whatever it recomputes.
TEST(BestFirst, FloorsNeverExceedTheEvaluation) {
  for (const Setting& s : settings()) {
    const Evaluator evaluator = evaluator_of(s);
    Evaluator::Worker worker = evaluator.worker();
    double share = 0;
    int plans = 0;
    for (const Layout& layout : varied_sample(s, 60)) {
      const Evaluation evaluation = worker.evaluate(layout);
      const Floor whole = worker.floor(layout);
      Floor own;
      worker.floors(layout, {&layout.recompute, 1}, {&own, 1});
      const std::string name = name_of(s) + ' ' + describe(layout);
      EXPECT_LE(own.step_seconds, evaluation.step_seconds) << name;
      EXPECT_LE(own.device_bytes, evaluation.device_bytes) << name;
      EXPECT_LE(whole.step_seconds, own.step_seconds) << name;
      EXPECT_LE(whole.device_bytes, own.device_bytes) << name;
      const Evaluation again = worker.evaluate(layout); // floors in between change nothing
      EXPECT_EQ(again.step_seconds, evaluation.step_seconds) << name;
      EXPECT_EQ(again.device_bytes, evaluation.device_bytes) << name;
      share += own.step_seconds / evaluation.step_seconds;
      ++plans;
    }
    EXPECT_GT(share / plans, 0.7) << name_of(s) << ": a floor far below says little";
  }
}

} // namespace
} // namespace foretrain
