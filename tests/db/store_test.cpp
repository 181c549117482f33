#include "db/store.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/db/samples.h"

namespace foretrain {
namespace {

using namespace test;

class StoreTest : public ::testing::Test {
protected:
  StoreTest() : store_(open(OpenMode::write)) {}

  Store open(OpenMode mode) {
    auto store = Store::open(folder_ / "plans.db", mode, data_folder());
    if (!store) throw std::runtime_error(to_string(store.error()));
    return std::move(*store);
  }
  StudyId new_study() { return store_.begin_study(sample_study(), "1.2.3").value(); }

  TemporaryFolder folder_;
  Store store_;
};

TEST_F(StoreTest, ReadsBackTheStudyThatWasWritten) {
  const StudyId id = new_study();
  EXPECT_EQ(store_.study(id).value(), sample_study());
  const StudySummary summary = store_.summary(id).value();
  EXPECT_EQ(summary.model, "tiny");
  EXPECT_EQ(summary.cluster, "two nodes");
  EXPECT_EQ(summary.sequence_length, 2048);
  EXPECT_EQ(summary.global_batch, 64);
  EXPECT_EQ(summary.semantics, "megatron-core");
  EXPECT_EQ(summary.program_version, "1.2.3");
  EXPECT_EQ(summary.created_at.size(), 20U); // 2026-01-31T12:34:56Z
  EXPECT_FALSE(summary.complete);
  EXPECT_FALSE(summary.elapsed.has_value());
}

TEST_F(StoreTest, KeepsTheEarlierRowOfARepeatedStudy) {
  const StudyId first = new_study();
  ASSERT_TRUE(store_.add_candidates(first, sample_batch(0, 3)));
  const StudyId second = new_study();
  EXPECT_NE(first, second);
  const auto studies = store_.studies(10).value();
  ASSERT_EQ(studies.size(), 2U);
  EXPECT_EQ(studies[0].id, second) << "newest first";
  EXPECT_EQ(studies[0].digest, studies[1].digest);
  EXPECT_EQ(studies[0].candidates, 0);
  EXPECT_EQ(studies[1].candidates, 3);
}

TEST_F(StoreTest, TellsWhetherAndHowAStudyEnded) {
  const StudyId id = new_study();
  const StudyCounts counts{1000, 900, 800, 700};
  ASSERT_TRUE(store_.finish_study(id, counts, Seconds(2.5), true));
  const StudySummary summary = store_.summary(id).value();
  EXPECT_TRUE(summary.complete);
  EXPECT_EQ(summary.elapsed, Seconds(2.5));
  EXPECT_EQ(summary.counts, counts);
}

TEST_F(StoreTest, ReadsBackACandidateAsPlanAndPrediction) {
  const StudyId study = new_study();
  NewCandidate candidate{sample_layout(7), {stored(Engine::slots, 2.0)}, true};
  candidate.layout.schedule = {"interleaved", 2};
  candidate.layout.recompute = {RecomputeKind::selective, {}, {}, {RecomputeModule::core_attention}};
  candidate.layout.layers_per_stage = {1, 1, 1, 1};
  const CandidateId id = store_.add_candidates(study, std::array{candidate}).value().front();
  const StoredCandidate read = store_.candidate(id).value();
  EXPECT_EQ(read.plan.model, sample_study().model);
  EXPECT_EQ(read.plan.cluster, sample_study().cluster);
  EXPECT_EQ(read.plan.job, sample_study().job);
  EXPECT_EQ(read.plan.layout, candidate.layout);
  EXPECT_EQ(read.best, candidate.predictions.front());
  EXPECT_TRUE(read.pareto);
}

TEST_F(StoreTest, RanksByTheObjectiveWithThoseThatFitFirst) {
  const StudyId study = new_study();
  const std::vector<NewCandidate> batch = {
      {sample_layout(0), {stored(Engine::slots, 3.0)}, false},
      {sample_layout(1), {stored(Engine::slots, 1.0, Verdict::oom)}, false},
      {sample_layout(2), {stored(Engine::slots, 2.0)}, false},
  };
  const auto ids = store_.add_candidates(study, batch).value();
  const auto order = [&](Objective objective) {
    std::vector<CandidateId> result;
    const auto ranked = store_.ranked(study, objective, 10).value();
    for (const StoredCandidate& candidate : ranked) result.push_back(candidate.id);
    return result;
  };
  const std::vector<CandidateId> fastest = {ids[2], ids[0], ids[1]};
  EXPECT_EQ(order(Objective::step_time), fastest);
  EXPECT_EQ(order(Objective::throughput), fastest);
  EXPECT_EQ(order(Objective::cost), fastest);
  // The samples' peak is 60e9 / time.
  EXPECT_EQ(order(Objective::memory_headroom), (std::vector<CandidateId>{ids[0], ids[2], ids[1]}));
  const auto page = store_.ranked(study, Objective::step_time, 1, 1).value();
  ASSERT_EQ(page.size(), 1U);
  EXPECT_EQ(page[0].id, ids[0]);
}

TEST_F(StoreTest, RanksByTheMostDetailedPrediction) {
  const StudyId study = new_study();
  const auto ids = store_.add_candidates(study, sample_batch(0, 2)).value(); // 1 s and 2 s by slots
  const NewCandidate refined{sample_layout(0), {stored(Engine::simgrid, 5.0), stored(Engine::replay, 4.0)}, false};
  const auto again = store_.add_candidates(study, std::array{refined}).value();
  EXPECT_EQ(again.front(), ids[0]) << "an equal layout is the same candidate";
  const auto ranked = store_.ranked(study, Objective::step_time, 10).value();
  ASSERT_EQ(ranked.size(), 2U);
  EXPECT_EQ(ranked[0].id, ids[1]);
  EXPECT_EQ(ranked[1].best.key.engine, Engine::simgrid);
  EXPECT_EQ(store_.predictions(ids[0]).value().size(), 3U);
}

TEST_F(StoreTest, ListsCandidatesAsTheRankingHasThem) {
  const StudyId study = new_study();
  std::vector<NewCandidate> batch = sample_batch(0, 6);
  batch[1].predictions.push_back(stored(Engine::replay, 0.5));
  batch[3].pareto = true;
  ASSERT_TRUE(store_.add_candidates(study, batch));
  const auto ranked = store_.ranked(study, Objective::step_time, 100).value();
  std::vector<RankedRow> rows;
  ASSERT_TRUE(store_.each_ranked(study, Objective::step_time, [&](RankedRow row) {
    rows.push_back(std::move(row));
    return true;
  }));
  ASSERT_EQ(rows.size(), 6U);
  ASSERT_EQ(rows.size(), ranked.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].id, ranked[i].id);
    EXPECT_EQ(rows[i].layout, ranked[i].plan.layout);
    EXPECT_EQ(rows[i].pareto, ranked[i].pareto);
    EXPECT_EQ(rows[i].engine, ranked[i].best.key.engine);
    EXPECT_EQ(rows[i].evidence, ranked[i].best.prediction.evidence);
    EXPECT_EQ(rows[i].step_time, ranked[i].best.prediction.step_time);
    EXPECT_EQ(rows[i].device, ranked[i].best.prediction.memory[0].device);
    EXPECT_EQ(rows[i].fullest_stage, 0);
    EXPECT_EQ(rows[i].prediction != nullptr, rows[i].engine == Engine::replay);
  }
  int taken = 0;
  ASSERT_TRUE(store_.each_ranked(study, Objective::step_time, [&](const RankedRow&) { return ++taken < 2; }));
  EXPECT_EQ(taken, 2);
}

TEST_F(StoreTest, KeepsPredictionsOfOtherSemanticsAndCalibrationsApart) {
  const StudyId study = new_study();
  NewCandidate candidate{sample_layout(0), {stored(Engine::replay, 1.0)}, false};
  candidate.predictions.push_back(candidate.predictions[0]);
  candidate.predictions[1].key.semantics = "foretrain";
  candidate.predictions.push_back(candidate.predictions[0]);
  candidate.predictions[2].key.calibration = "4567";
  const auto ids = store_.add_candidates(study, std::array{candidate}).value();
  EXPECT_EQ(store_.predictions(ids[0]).value().size(), 3U);
}

TEST_F(StoreTest, MarksTheParetoFront) {
  const StudyId study = new_study();
  const auto ids = store_.add_candidates(study, sample_batch(0, 4)).value();
  ASSERT_TRUE(store_.set_pareto(study, std::array{ids[0], ids[1]}));
  ASSERT_TRUE(store_.set_pareto(study, std::array{ids[3], ids[2]}));
  const auto front = store_.pareto(study).value();
  ASSERT_EQ(front.size(), 2U);
  EXPECT_EQ(front[0].id, ids[2]);
  EXPECT_EQ(front[1].id, ids[3]);
  EXPECT_FALSE(store_.set_pareto(study, std::array{CandidateId{999}}));
  EXPECT_EQ(store_.pareto(study).value().size(), 2U) << "a refused front leaves the one before";
}

TEST_F(StoreTest, KeepsRejectionsAndNearMisses) {
  const StudyId study = new_study();
  const std::vector<StoredNearMiss> misses = {
      {sample_layout(3), {"tp-divides-heads", "tp 3 does not divide 4 heads", 3, 4, {"tp 2", "tp 4"}}}};
  ASSERT_TRUE(store_.add_near_misses(study, misses));
  ASSERT_TRUE(store_.set_rejection_counts(study, {{"old", 1}}));
  ASSERT_TRUE(store_.set_rejection_counts(study, {{"tp-divides-heads", 12}, {"memory", 5'000'000'000}}));
  EXPECT_EQ(store_.near_misses(study).value(), misses);
  EXPECT_EQ(store_.rejection_counts(study).value(),
            (std::map<std::string, std::int64_t>{{"memory", 5'000'000'000}, {"tp-divides-heads", 12}}));
}

TEST_F(StoreTest, KeepsAnIllegalPredictionThoughItHasNoTime) {
  const StudyId study = new_study();
  StoredPrediction none = stored(Engine::slots, std::numeric_limits<double>::quiet_NaN(), Verdict::illegal);
  none.prediction.memory.clear();
  const auto ids = store_.add_candidates(study, std::array{NewCandidate{sample_layout(0), {none}, false}}).value();
  EXPECT_EQ(store_.candidate(ids[0]).value().best.prediction.verdict, Verdict::illegal);
}

TEST_F(StoreTest, RefusesRowsOfAStudyThatDoesNotExist) {
  EXPECT_FALSE(store_.add_candidates(StudyId{42}, sample_batch(0, 1)));
  EXPECT_FALSE(store_.finish_study(StudyId{42}, {}, Seconds(1), true));
  EXPECT_FALSE(store_.study(StudyId{42}));
  EXPECT_FALSE(store_.ranked(StudyId{42}, Objective::step_time, 1));
  EXPECT_FALSE(store_.candidate(CandidateId{42}));
}

TEST_F(StoreTest, KeepsARunWithItsPredictionsOpsAndFigures) {
  const Study study = sample_study();
  const Plan plan{study.model, study.cluster, study.job, sample_layout(5)};
  const std::vector<StoredPrediction> predictions = {stored(Engine::replay, 1.0)};
  const RunId run = store_.begin_run(plan, predictions, "local", "1.2.3").value();
  const std::vector<RunOp> ops = {
      {0, 0, "tp", 0, 20, Seconds(1e-3), Seconds(9e-4), Seconds(2e-3), "forward qkv", Seconds(8e-4)},
      {1, 0, "pp", 1, 20, Seconds(3e-3), Seconds(3e-3), Seconds(4e-3), "forward send", Seconds(2e-3)}};
  ASSERT_TRUE(store_.describe_run(run, "/runs/1", Json{{"cores", 2}}));
  EXPECT_FALSE(store_.describe_run(RunId{42}, "", Json()));
  ASSERT_TRUE(store_.add_run_ops(run, ops));
  const std::vector<RunFigure> figures = {{"step_time", {}, 3, 0.25, "s"}, {"peak_allocated", 1, {}, 1e9, "B"}};
  ASSERT_TRUE(store_.add_run_figures(run, figures));
  ASSERT_TRUE(store_.finish_run(run, RunStatus::failed, 7, "rank 1 died"));
  EXPECT_EQ(store_.run_plan(run).value(), plan);
  EXPECT_EQ(store_.run_predictions(run).value(), predictions);
  EXPECT_EQ(store_.run_ops(run).value(), ops);
  EXPECT_EQ(store_.run_figures(run).value(), figures);
  const auto runs = store_.runs(10).value();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].status, RunStatus::failed);
  EXPECT_EQ(runs[0].message, "rank 1 died");
  EXPECT_EQ(runs[0].model, "tiny");
  EXPECT_EQ(runs[0].folder, "/runs/1");
  EXPECT_EQ(runs[0].environment["cores"], 2);
  EXPECT_EQ(store_.run(run).value(), runs[0]);
  EXPECT_FALSE(store_.run(RunId{42}));
}

TEST_F(StoreTest, TakesARunOutWithAllThatIsItsOwn) {
  const Study study = sample_study();
  const Plan plan{study.model, study.cluster, study.job, {}};
  const RunId first = store_.begin_run(plan, {}, "local", "1").value();
  const RunId second = store_.begin_run(plan, {}, "local", "1").value();
  const std::vector<RunFigure> figures = {{"step_time", {}, 0, 0.25, "s"}};
  for (const RunId run : {first, second}) ASSERT_TRUE(store_.add_run_figures(run, figures));
  ASSERT_TRUE(store_.remove_run(first));
  EXPECT_FALSE(store_.remove_run(first)) << "it is gone";
  const auto runs = store_.runs(10).value();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].id, second);
  EXPECT_EQ(store_.run_figures(second).value(), figures);
  EXPECT_TRUE(store_.run_figures(first).value().empty());
}

TEST_F(StoreTest, NeverOverwritesAMeasurement) {
  const Study study = sample_study();
  const RunId run = store_.begin_run({study.model, study.cluster, study.job, {}}, {}, "local", "1").value();
  const std::vector<RunOp> ops = {{0, 0, "tp", 0, 20, Seconds(1), Seconds(1), Seconds(1), "", Seconds(0)}};
  ASSERT_TRUE(store_.add_run_ops(run, ops));
  EXPECT_FALSE(store_.add_run_ops(run, ops));
  EXPECT_EQ(store_.run_ops(run).value(), ops);
}

TEST_F(StoreTest, KeepsDocumentsByKey) {
  const std::string digest = store_.keep_calibration("h100", R"({"a": 1})").value();
  EXPECT_EQ(store_.keep_calibration("h100", R"({"a": 1})").value(), digest);
  EXPECT_EQ(store_.calibration(digest).value(), R"({"a": 1})");
  EXPECT_FALSE(store_.calibration("none"));
  EXPECT_FALSE(store_.keep_calibration("h100", "{"));
  ASSERT_TRUE(store_.keep_view_state("table", R"({"sort": "tp"})"));
  ASSERT_TRUE(store_.keep_view_state("table", R"({"sort": "pp"})"));
  EXPECT_EQ(store_.view_state("table").value(), R"({"sort": "pp"})");
  EXPECT_EQ(store_.view_state("plot").value(), std::nullopt);
}

TEST_F(StoreTest, IsReadWhileItIsOpenForWriting) {
  const StudyId study = new_study();
  ASSERT_TRUE(store_.add_candidates(study, sample_batch(0, 5)));
  const Store reader = open(OpenMode::read);
  EXPECT_EQ(reader.ranked(study, Objective::step_time, 10).value().size(), 5U);
}

TEST_F(StoreTest, TakesManyCandidatesAndPagesThroughThem) {
  const StudyId study = new_study();
  constexpr int kBatch = 5'000;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store_.add_candidates(study, sample_batch(i * kBatch, kBatch)));
  EXPECT_EQ(store_.summary(study).value().candidates, 4 * kBatch);
  const auto page = store_.ranked(study, Objective::step_time, 50, 10'000).value();
  ASSERT_EQ(page.size(), 50U);
  EXPECT_EQ(page[0].best.prediction.step_time, Seconds(10'001)) << "the samples take 1 s, 2 s, …";
  EXPECT_EQ(page[49].best.prediction.step_time, Seconds(10'050));
}

} // namespace
} // namespace foretrain
