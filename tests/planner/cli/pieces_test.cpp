#include <gtest/gtest.h>

#include "planner/cli/progress.h"
#include "planner/cli/table.h"
#include "planner/cli/validation.h"

namespace foretrain::cli {
namespace {

TEST(Progress, SaysPhaseFractionAndTimeLeft) {
  EXPECT_EQ(progress_text({"search", 12345, 24690, 512}, 3), "search  50 % · 12,345 of 24,690 · 512 fit · 3 s left");
  EXPECT_EQ(progress_text({"search", 0, 100, 0}, 1), "search   0 % · 0 of 100 · 0 fit");
}

TEST(Progress, WarnsOfSpacesThatTakeLong) {
  EXPECT_EQ(large_space_note({1'000'000'000, 1'000'000}), "");
  const std::string note = large_space_note({106'194'373, 97'000'000});
  EXPECT_NE(note.find("106,194,373"), std::string::npos);
  EXPECT_NE(note.find("--where"), std::string::npos);
}

TEST(Numbers, GetCommas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
}

TEST(TextTable, AlignsNumbersRightAndTextsLeft) {
  EXPECT_EQ(text_table({{"name", "n"}, {"é", "10"}, {"abcde", "9"}}), "name    n\né      10\nabcde   9\n");
}

TEST(Wrapped, BreaksAtSpacesOnly) {
  EXPECT_EQ(wrapped("one two three", 8), "one two\n  three\n");
  EXPECT_EQ(wrapped("unbreakable-word-that-is-long", 8), "unbreakable-word-that-is-long\n");
  EXPECT_EQ(wrapped("short", 8), "short\n");
}

TEST(LayoutTable, HidesWhatNoRowUsesAndKeepsTheWidth) {
  JobSpec job;
  job.sequence_length = 128;
  job.global_batch = 8;
  ClusterSpec cluster;
  Layout layout;
  layout.tp = 4;
  const std::vector<FieldRow> rows = {{job, cluster, layout, nullptr, nullptr}};
  const LayoutTable wide = layout_table(rows, 200);
  EXPECT_EQ(wide.text.find(" ep "), std::string::npos) << wide.text;
  EXPECT_NE(wide.text.find("schedule"), std::string::npos) << wide.text;
  EXPECT_TRUE(wide.left_out.empty());
  const LayoutTable narrow = layout_table(rows, 40);
  EXPECT_FALSE(narrow.left_out.empty());
  EXPECT_LE(columns_of(narrow.text.substr(0, narrow.text.find('\n'))), 40);
}

TEST(ErrorSummary, CountsMeansAndTheNinthDecile) {
  const ErrorSummary summary = summarise_errors({-10, 10, 20, 0, 5, 5, 5, 5, 5, 40});
  EXPECT_EQ(summary.count, 10);
  EXPECT_DOUBLE_EQ(summary.mean_signed, 8.5);
  EXPECT_DOUBLE_EQ(summary.mean_absolute, 10.5);
  EXPECT_DOUBLE_EQ(summary.p90_absolute, 20);
  EXPECT_EQ(summarise_errors({}).count, 0);
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

} // namespace
} // namespace foretrain::cli
