#include <algorithm>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "planner/cli/describe_prediction.h"
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

/// Two layouts of one job: tp 4, with one and two pipeline stages.
struct TwoRows {
  JobSpec job;
  ClusterSpec cluster;
  Layout one;
  Layout two;
  std::vector<FieldRow> rows;

  TwoRows() {
    job.sequence_length = 128;
    job.global_batch = 8;
    one.tp = two.tp = 4;
    two.pp = 2;
    for (const Layout* layout : {&one, &two}) rows.push_back({job, cluster, *layout, nullptr, nullptr});
  }
};

int widest_line(const std::string& text) {
  int widest = 0;
  for (std::size_t from = 0, to = 0; from < text.size(); from = to + 1) {
    to = std::min(text.find('\n', from), text.size());
    widest = std::max(widest, columns_of(text.substr(from, to - from)));
  }
  return widest;
}

TEST(LayoutTable, HidesWhatNoRowUsesAndKeepsTheWidth) {
  const TwoRows two;
  const LayoutTable wide = layout_table(std::span(two.rows).first(1), 200);
  EXPECT_EQ(wide.text.find(" ep "), std::string::npos) << wide.text;
  EXPECT_NE(wide.text.find("schedule"), std::string::npos) << wide.text;
  EXPECT_TRUE(wide.left_out.empty());
  const LayoutTable narrow = layout_table(std::span(two.rows).first(1), 40);
  EXPECT_FALSE(narrow.left_out.empty());
  EXPECT_LE(widest_line(narrow.text), 40);
}

TEST(LayoutTable, SaysOnceWhatAllRowsShare) {
  const TwoRows two;
  const LayoutTable table = layout_table(two.rows, 200);
  EXPECT_EQ(table.text.find("schedule"), std::string::npos) << table.text;
  EXPECT_NE(table.text.find(" tp "), std::string::npos) << table.text;
  EXPECT_NE(layout_table_notes(table, 200).find("schedule "), std::string::npos) << layout_table_notes(table, 200);
}

TEST(LayoutTable, IsAListWhereNoTableFits) {
  const TwoRows two;
  const LayoutTable list = layout_table(two.rows, 24);
  EXPECT_LE(widest_line(list.text), 24) << list.text;
  EXPECT_NE(list.text.find("2.  "), std::string::npos) << list.text;
  EXPECT_NE(list.text.find("tp4 pp2"), std::string::npos) << list.text;
}

// Narrow terminals: no line of the tables of a plan is broken.
TEST(Tables, FitNarrowTerminals) {
  Prediction prediction;
  prediction.step_time = Seconds(61.25);
  prediction.time[0] = Seconds(58.9);
  prediction.time[1] = Seconds(2.35);
  for (const std::int64_t gib : {71, 64}) {
    StageMemory stage;
    stage.allocated = Bytes(gib * kGiB);
    stage.reserved = Bytes((gib + 4) * kGiB);
    stage.device = Bytes((gib + 6) * kGiB);
    for (Bytes& part : stage.parts) part = Bytes(stage.device.value / kMemoryParts);
    prediction.memory.push_back(stage);
  }
  for (const int width : {40, 60, 80, 120}) {
    EXPECT_LE(widest_line(time_table(prediction, width)), width);
    EXPECT_LE(widest_line(memory_table(prediction, width)), width);
  }
  EXPECT_NE(memory_table(prediction, 40).find("77.00"), std::string::npos) << "the device's total stays";
  EXPECT_NE(memory_table(prediction, 60).find("reserved"), std::string::npos);
}

} // namespace
} // namespace foretrain::cli
