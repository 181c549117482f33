#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"
#include "core/spec/layout.h"

namespace foretrain {
namespace {

TEST(ScheduleCatalogue, HasTheIdsThatALayoutMayName) {
  const std::vector<std::string> names(kScheduleKinds.begin(), kScheduleKinds.end());
  EXPECT_EQ(schedules().ids(), names);
}

TEST(ScheduleCatalogue, EverySummarySaysSomethingElse) {
  std::vector<std::string> summaries;
  for (const auto& schedule : schedules()) summaries.emplace_back(schedule->summary());
  std::sort(summaries.begin(), summaries.end());
  EXPECT_EQ(std::adjacent_find(summaries.begin(), summaries.end()), summaries.end());
  EXPECT_FALSE(summaries.front().empty());
}

} // namespace
} // namespace foretrain
