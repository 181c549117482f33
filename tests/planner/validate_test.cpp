#include <gtest/gtest.h>

#include <cmath>

#include "planner/validate/accuracy.h"
#include "planner/validate/constants.h"
#include "planner/validate/errors.h"
#include "planner/validate/split.h"
#include "planner/validate/terms.h"
#include "tests/support/places.h"

/// What `foretrain validate` counts: the protocol of docs/accuracy.md on rows made up here.
namespace foretrain::validation {
namespace {

ValidatedRow row(const std::string& id, double predicted, double measured) {
  ValidatedRow row;
  row.source = "a source";
  row.row_id = id;
  row.outcome = "ok";
  row.predicted_seconds = predicted;
  row.measured_seconds = measured;
  row.evidence = Evidence::fitted;
  row.features.model = "m";
  row.features.device = "d";
  row.features.devices = 8;
  row.features.flop = 1;
  row.features.peak = 10;
  return row;
}

TEST(ErrorSummary, CountsMeansAndTheNinthDecile) {
  const ErrorSummary summary = summarise_errors({-10, 10, 20, 0, 5, 5, 5, 5, 5, 40});
  EXPECT_EQ(summary.count, 10);
  EXPECT_DOUBLE_EQ(summary.mean_signed, 8.5);
  EXPECT_DOUBLE_EQ(summary.mean_absolute, 10.5);
  EXPECT_DOUBLE_EQ(summary.p90_absolute, 20);
  EXPECT_EQ(summarise_errors({}).count, 0);
}

TEST(ValidationSummary, SaysWhichEligibleRowsAreNotPredicted) {
  std::vector<ValidatedRow> rows(4, row("r", 1, 1));
  for (ValidatedRow& r : rows) r.eligible = true;
  rows[1].skipped = "unsupported-precision int8";
  rows[1].skip_reason = "unsupported-precision";
  rows[2].verdict = Verdict::illegal;
  rows[2].rule = "ep-folding";
  rows[3].eligible = false;
  const ValidationSummary summary = summarise_rows(all_of(rows));
  EXPECT_EQ(summary.eligible, 3);
  EXPECT_EQ(summary.predicted, 1);
  EXPECT_EQ(summary.unpredicted,
            (std::map<std::string, int>{{"unsupported-precision int8", 1}, {"rule ep-folding", 1}}));
}

TEST(ValidationSummary, KeepsOutOfMemoryRunsApart) {
  ValidatedRow ran;
  ran.predicted_seconds = 11;
  ran.measured_seconds = 10;
  ValidatedRow foreseen;
  foreseen.out_of_memory = true;
  foreseen.verdict = Verdict::oom;
  foreseen.predicted_seconds = 5;
  foreseen.measured_seconds = 1; // of no meaning: it did not run
  ValidatedRow skipped;
  skipped.skipped = "missing vocab";
  skipped.skip_reason = "missing";
  const ValidationSummary summary = summarise_rows({&ran, &foreseen, &skipped});
  EXPECT_EQ(summary.rows, 3);
  EXPECT_EQ(summary.compared, 2);
  EXPECT_EQ(summary.time.count, 1);
  EXPECT_DOUBLE_EQ(summary.time.mean_signed, 10);
  EXPECT_EQ(summary.ran_out_of_memory, 1);
  EXPECT_EQ(summary.foreseen, 1);
  EXPECT_EQ(summary.skipped.at("missing"), 1);
}

TEST(ValidationSummary, CountsRunsWhoseSourceLeavesMemoryOpenApart) {
  ValidatedRow wrong;
  wrong.verdict = Verdict::oom;
  ValidatedRow open = wrong;
  open.memory_open = {"recompute"};
  const ValidationSummary summary = summarise_rows({&wrong, &open});
  EXPECT_EQ(summary.ran, 2);
  EXPECT_EQ(summary.wrongly_out_of_memory, 1);
  EXPECT_EQ(summary.open_out_of_memory, 1);
}

TEST(Ranking, CountsTiesWithinOnePercentAsEqual) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {40, 30, 20, 10}), -1);
  // 1.005 is no later than 1: the two share their rank, so that their order costs nothing.
  EXPECT_DOUBLE_EQ(spearman({1.005, 1, 2}, {1, 1.005, 2}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 1, 1}, {1, 2, 3}), 0) << "ties alone say nothing";
}

TEST(Ranking, RegretIsWhatThePredictedBestLosesAgainstTheMeasuredBest) {
  std::vector<ValidatedRow> rows;
  const double predicted[] = {1.0, 1.2, 1.4, 1.6, 1.8};
  const double measured[] = {1.1, 1.0, 1.5, 1.7, 1.9};
  for (int i = 0; i < 5; ++i) rows.push_back(row(std::to_string(i), predicted[i], measured[i]));
  const auto groups = rank_groups(all_of(rows));
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_NEAR(groups[0].regret_percent, 10, 1e-9);
  EXPECT_NEAR(groups[0].spearman, 0.9, 1e-9); // 1 - 6·2/(5·24)
  rows.pop_back();
  EXPECT_TRUE(rank_groups(all_of(rows)).empty()) << "a group has at least five timed rows";
}

TEST(Split, HoldsOutWholeGroupsAndAboutOneInFive) {
  int held = 0;
  for (int i = 0; i < 1000; ++i) {
    RowFeatures features;
    features.model = "model-" + std::to_string(i);
    features.device = "d";
    features.devices = 8;
    features.tp = 1;
    const bool out = is_held_out(features);
    features.tp = 8;
    EXPECT_EQ(is_held_out(features), out) << "a layout does not move a row between the sets";
    held += out ? 1 : 0;
  }
  EXPECT_NEAR(held, 200, 40); // three standard deviations of a binomial count
}

TEST(Errors, SourcesWeighAlikeOverSources) {
  std::vector<ValidatedRow> rows(3, row("x", 1.1, 1));
  rows.push_back(row("y", 0.7, 1));
  rows.back().source = "another";
  const SourceMeans means = over_sources(all_of(rows));
  EXPECT_EQ(means.sources, 2);
  EXPECT_NEAR(means.mean_absolute, 20, 1e-9);
  EXPECT_NEAR(means.mean_signed, -10, 1e-9);
  EXPECT_NEAR(summarise_rows(all_of(rows)).time.mean_absolute, 15, 1e-9);
}

TEST(Baselines, OneUtilisationIsTheMedianOfRowsThatAreNotHeldOut) {
  std::vector<ValidatedRow> rows = {row("a", 1, 0.2), row("b", 1, 0.25), row("c", 1, 0.5)};
  rows.push_back(row("d", 1, 0.1));
  rows.back().held_out = true;
  const Baselines found = baselines(all_of(rows), all_of(rows));
  EXPECT_NEAR(found.utilisation.at("d"), 0.4, 1e-12); // 1 / (10 · 0.25)
  EXPECT_EQ(found.by_utilisation.count, 4);
  EXPECT_EQ(found.by_nearest.count, 0) << "the only group may not tell about itself";
}

TEST(IntervalsOfResiduals, HoldEightyPercentOfWhatTheyWereReadFrom) {
  std::vector<ValidatedRow> rows;
  for (int i = 0; i < 101; ++i) rows.push_back(row(std::to_string(i), 1, std::exp(0.01 * (i - 50))));
  const Intervals intervals = fit_intervals(all_of(rows));
  const Interval& fitted = intervals.time[static_cast<std::size_t>(Evidence::fitted)];
  EXPECT_NEAR(fitted.low, std::exp(-0.4), 1e-4); // four digits
  EXPECT_NEAR(fitted.high, std::exp(0.4), 1e-4);
  EXPECT_EQ(fitted.rows, 101);
  for (ValidatedRow& r : rows) r.time_interval = {fitted.low, fitted.high};
  EXPECT_NEAR(coverage_of_time(all_of(rows)).at("all").covered, 0.8, 0.02);
}

TEST(AccuracyPage, KeepsItsRemarksAndFailsWhenAFigureGetsWorse) {
  std::vector<ValidatedRow> rows;
  for (int i = 0; i < 12; ++i) rows.push_back(row(std::to_string(i), 1.05, 1));
  const Accuracy accuracy = accuracy_of(rows, {});
  const std::string page = accuracy_page(accuracy, "# Accuracy\n\nremarks\n\n");
  EXPECT_EQ(remarks_of(page), "# Accuracy\n\nremarks\n\n");
  EXPECT_TRUE(worse_than(page, accuracy).empty());
  for (ValidatedRow& r : rows) r.predicted_seconds = 1.055;
  EXPECT_TRUE(worse_than(page, accuracy_of(rows, {})).empty()) << "half a point is within the margin";
  for (ValidatedRow& r : rows) r.predicted_seconds = 1.07;
  const auto failures = worse_than(page, accuracy_of(rows, {}));
  ASSERT_EQ(failures.size(), 2U) << "all rows, and the source";
  EXPECT_NE(failures[0].find("7.0"), std::string::npos);
}

TEST(FittedConstants, AreInsideTheirRangesAndFew) {
  const auto constants = read_fitted_constants(test::source_folder() / "data");
  ASSERT_TRUE(constants) << to_string(constants.error());
  EXPECT_FALSE(constants->empty());
  for (const FittedConstant& constant : *constants) {
    EXPECT_GT(constant.value, constant.low) << constant.key;
    EXPECT_LT(constant.value, constant.high) << constant.key;
  }
}

TEST(Terms, FindThePartWhoseShareGoesWithTheError) {
  std::vector<ValidatedRow> rows;
  for (int i = 0; i < 6; ++i) {
    const double tp = 0.05 * i;
    ValidatedRow r = row(std::to_string(i), 1, 1 + tp); // every second of tp takes two
    r.time[static_cast<std::size_t>(TimePart::tp)] = Seconds(tp);
    r.time[static_cast<std::size_t>(TimePart::optimizer)] = Seconds(0.1);
    r.time[static_cast<std::size_t>(TimePart::compute)] = Seconds(0.9 - tp);
    rows.push_back(r);
  }
  const std::vector<Term> terms = terms_of(rows.back(), all_of(rows));
  ASSERT_FALSE(terms.empty());
  const auto tp = std::find_if(terms.begin(), terms.end(), [](const Term& t) { return t.part == TimePart::tp; });
  ASSERT_NE(tp, terms.end());
  EXPECT_NEAR(tp->slope, 1, 1e-9);
  EXPECT_NEAR(tp->correlation, 1, 1e-9);
}

} // namespace
} // namespace foretrain::validation
