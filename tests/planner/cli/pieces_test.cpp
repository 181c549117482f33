#include <gtest/gtest.h>

#include "planner/cli/progress.h"
#include "planner/cli/table.h"

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

} // namespace
} // namespace foretrain::cli
