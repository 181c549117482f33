// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/why_not.h"

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/gui/fixtures.h"

namespace foretrain::gui {
namespace {

TEST(LayoutInWords, SetsWhatIsNamedAndLeavesTheRest) {
  Layout base;
  base.micro_batch = 2;
  const auto layout = layout_in_words("tp 4, pp=2 schedule interleaved*2 sp yes sharding gradients", base, 16);
  ASSERT_TRUE(layout) << to_string(layout.error());
  EXPECT_EQ(layout->tp, 4);
  EXPECT_EQ(layout->pp, 2);
  EXPECT_EQ(layout->dp_shard, 2) << "the devices that are left";
  EXPECT_EQ(layout->micro_batch, 2) << "as before";
  EXPECT_EQ(layout->schedule, (ScheduleChoice{"interleaved", 2}));
  EXPECT_TRUE(layout->sequence_parallel);
  EXPECT_EQ(layout->sharding.kind, ShardingKind::gradients);
  EXPECT_EQ(layout_in_words("dp 3", base, 16)->dp_shard, 3) << "what is asked for, though it leaves devices idle";
  EXPECT_EQ(layout_in_words(words_of(*layout), Layout{}, 16)->schedule, layout->schedule);
  const auto overlapped = layout_in_words("tp 4 sp yes overlap_tp yes", base, 16);
  ASSERT_TRUE(overlapped) << to_string(overlapped.error());
  EXPECT_TRUE(overlapped->overlap.tp);
  EXPECT_TRUE(overlapped->overlap.p2p) << "the other switches stay";
  EXPECT_TRUE(layout_in_words(words_of(*overlapped), Layout{}, 16)->overlap.tp);
  EXPECT_FALSE(layout_in_words("overlap_tp no", *overlapped, 16)->overlap.tp);
}

TEST(LayoutInWords, AGroupBelongsToTheSchedule) {
  const auto grouped = layout_in_words("group 5 pp 4 schedule interleaved*2", {}, 16);
  ASSERT_TRUE(grouped) << to_string(grouped.error());
  EXPECT_EQ(grouped->schedule, (ScheduleChoice{"interleaved", 2, 5}));
  EXPECT_EQ(layout_in_words(words_of(*grouped), Layout{}, 16)->schedule, grouped->schedule);
  EXPECT_EQ(layout_in_words("group 6", *grouped, 16)->schedule, (ScheduleChoice{"interleaved", 2, 6}));
  EXPECT_EQ(layout_in_words("schedule 1f1b", *grouped, 16)->schedule, ScheduleChoice{});
  EXPECT_FALSE(layout_in_words("schedule 1f1b group 5", Layout{}, 16));
}

TEST(LayoutInWords, SaysWhatDoesNotRead) {
  for (const char* words : {"tp", "tp x", "tp 0", "colour 3", "schedule 7up", "sharding interleaved*2", "tp 2 3"}) {
    const auto layout = layout_in_words(words, {}, 8);
    ASSERT_FALSE(layout) << words;
    EXPECT_FALSE(layout.error().message.empty());
  }
}

TEST(WhyNot, AnswersForAnyLayout) {
  auto results = std::make_shared<Results>(*test::made_up_results(1));
  const Environment environment = test::environment();
  const int devices = device_count(results->study.cluster);
  const auto legal = layout_in_words("tp 2 pp 1 cp 1 micro_batch 1 recompute full", {}, devices);
  ASSERT_TRUE(legal);
  const auto fits = why_not(environment, *results, *legal);
  ASSERT_TRUE(fits) << to_string(fits.error());
  EXPECT_EQ(fits->row, -1);
  EXPECT_EQ(fits->prediction.verdict, Verdict::fits);
  EXPECT_NE(lines_of(*fits).back().find("not kept"), std::string::npos);
  results->rows[0].layout = *legal;
  EXPECT_NE(lines_of(*why_not(environment, *results, *legal)).back().find("#1 in the table"), std::string::npos);
  const auto broken = layout_in_words("tp 7 pp 1", {}, devices);
  ASSERT_TRUE(broken);
  const auto illegal = why_not(environment, *results, *broken);
  ASSERT_TRUE(illegal);
  EXPECT_EQ(illegal->prediction.verdict, Verdict::illegal);
  const auto lines = lines_of(*illegal);
  ASSERT_GT(lines.size(), 2U);
  EXPECT_NE(lines[2].find("needed"), std::string::npos) << "with both numbers: " << lines[2];
}

} // namespace
} // namespace foretrain::gui
