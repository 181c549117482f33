// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>

#include "gui/model/rows.h"
#include "tests/gui/fixtures.h"

namespace foretrain::gui {
namespace {

Results three_rows() {
  Results results = *test::made_up_results(3);
  for (int i = 0; i < 3; ++i) results.rows[static_cast<std::size_t>(i)].slots.step_seconds = 3 - i;
  auto known = std::make_shared<Prediction>();
  known->step_time = Seconds(2);
  known->mfu_percent = 40;
  results.rows[1].prediction = known;
  return results;
}

TEST(Rows, SortUnknownValuesLastInBothDirections) {
  const Results results = three_rows(); // the MFU of row 1 alone is known
  EXPECT_EQ(shown_rows(results, {}, {{"mfu_percent", false}}), (std::vector<int>{1, 0, 2}));
  EXPECT_EQ(shown_rows(results, {}, {{"mfu_percent", true}}), (std::vector<int>{1, 0, 2}));
}

TEST(Rows, SortByTheKeysInTurnAndThenByRank) {
  Results results = *test::made_up_results(40);
  const auto order = shown_rows(results, {}, {{"tp", true}, {"step_time_s", false}});
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Row& a = results.rows[static_cast<std::size_t>(order[i - 1])];
    const Row& b = results.rows[static_cast<std::size_t>(order[i])];
    EXPECT_TRUE(a.layout.tp > b.layout.tp || (a.layout.tp == b.layout.tp && step_seconds(a) <= step_seconds(b)));
  }
}

TEST(Rows, FilterKeepsWhatEveryFilterAdmits) {
  const Results results = *test::made_up_results(30'000); // enough for several threads
  const auto tp = Filter::parse("tp >= 4", "test");
  const auto pp = Filter::parse("pp == 2", "test");
  int expected = 0;
  for (const Row& row : results.rows) expected += row.layout.tp >= 4 && row.layout.pp == 2 ? 1 : 0;
  EXPECT_GT(expected, 0);
  EXPECT_EQ(static_cast<int>(shown_rows(results, {*tp, *pp}, {}).size()), expected);
}

TEST(Rows, SayWhyOneIsPreferredAmongThoseThatTie) {
  Results results = three_rows();
  results.rows[0].layout = Layout{};
  results.rows[0].layout.tp = 2;
  results.rows[0].layout.pp = 2;
  results.rows[1].layout = Layout{};
  results.rows[1].layout.tp = 2;
  EXPECT_EQ(preferred_reason(results), "") << "nothing ties";
  results.tied_with_best = 2;
  results.preferred = 1;
  const std::string reason = preferred_reason(results);
  EXPECT_EQ(reason.find("preferred among the 2 plans that tie with the best: 1 moving part and "), 0u) << reason;
  EXPECT_NE(reason.find("where the best has 2 moving parts"), std::string::npos) << reason;
  results.preferred = 0;
  EXPECT_EQ(preferred_reason(results).find("where the best"), std::string::npos);
}

TEST(Rows, TheFrontHasNoRowThatAnotherBeats) {
  const Results results = *test::made_up_results(500);
  int front = 0;
  for (const Row& row : results.rows) {
    const bool beaten = std::any_of(results.rows.begin(), results.rows.end(), [&](const Row& other) {
      return step_seconds(other) <= step_seconds(row) && memory_bytes(other) <= memory_bytes(row) &&
             (step_seconds(other) < step_seconds(row) || memory_bytes(other) < memory_bytes(row));
    });
    EXPECT_EQ(row.pareto, !beaten);
    front += row.pareto ? 1 : 0;
  }
  EXPECT_GT(front, 1);
}

TEST(Rows, StaySmall) {
  EXPECT_LE(sizeof(Row), 320U); // 500 bytes are the budget, indices and texts beside
}

} // namespace
} // namespace foretrain::gui
