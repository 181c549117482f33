#include <cmath>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>

#include "executor/run.h"
#include "executor/summary.h"

namespace foretrain {
namespace {

TEST(AppendLine, SaysThatADiskIsFull) {
  const auto written = append_line("/dev/full", Json{{"step", 0}});
  ASSERT_FALSE(written);
  EXPECT_NE(to_string(written.error()).find("No space left"), std::string::npos) << to_string(written.error());
}

TEST(RunFollower, AddsUpRanksAndWaitsForTheSlowest) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "follower.json";
  ASSERT_TRUE(start_file(file));
  RunFollower follower(file, 2, 0, 1);
  ASSERT_TRUE(append_line(file, Json{{"format", "foretrain-run 1"}}));
  ASSERT_TRUE(append_line(file, Json{{"rank", 1}, {"step", 0}, {"loss", 0.5}, {"step_time_s", 2.0}}));
  EXPECT_TRUE(follower.poll().empty()) << "rank 0 has not reported";
  ASSERT_TRUE(append_line(
      file, Json{{"rank", 0}, {"step", 0}, {"loss", 0.25}, {"step_time_s", 1.0}, {"peak_allocated_bytes", 7}}));
  const auto steps = follower.poll();
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].loss, 0.75);
  EXPECT_EQ(steps[0].seconds, 2.0);
  EXPECT_TRUE(follower.poll().empty()) << "told once";
  const Json summary = follower.summary();
  EXPECT_EQ(summary["steps"], 1);
  EXPECT_EQ(summary["memory"].size(), 1U);
  EXPECT_EQ(summary["memory"][0]["peak_allocated_bytes"], 7);
  std::filesystem::remove(file);
}

TEST(RunFollower, GoesOnWhereTheLossIsNoNumber) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "diverged.json";
  ASSERT_TRUE(start_file(file));
  RunFollower follower(file, 1, 0, 0);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(append_line(file, Json{{"rank", 0}, {"step", 0}, {"loss", kNone}, {"step_time_s", 0.1}}));
  const auto steps = follower.poll();
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_TRUE(std::isnan(steps[0].loss));
  EXPECT_TRUE(Json::parse(follower.summary().dump())["loss"][0].is_null());
  std::filesystem::remove(file);
}

TEST(RunFollower, GoesBackToTheCheckpointAfterARestart) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "follower-restart.json";
  ASSERT_TRUE(start_file(file));
  RunFollower follower(file, 1, 10, 0); // the run itself goes on from step 10
  const auto step = [&](int number, double loss) {
    ASSERT_TRUE(append_line(file, Json{{"rank", 0}, {"step", number}, {"loss", loss}, {"step_time_s", 1.0}}));
  };
  for (const int number : {10, 11, 12}) step(number, number);
  EXPECT_EQ(follower.poll().size(), 3U);
  ASSERT_TRUE(append_line(file, Json{{"rank", 0}, {"error", "lost"}}));
  ASSERT_TRUE(append_line(file, Json{{"restart", {{"number", 1}, {"step", 11}}}}));
  step(11, 111);
  const auto again = follower.poll();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].number, 11);
  const Json summary = follower.summary();
  EXPECT_EQ(summary["loss"], (Json{10.0, 111.0}));
  EXPECT_EQ(summary["first_step"], 10);
  EXPECT_EQ(summary["restarts"], 1);
  EXPECT_FALSE(summary.contains("errors")) << "that was before the restart";
  std::filesystem::remove(file);
}

} // namespace
} // namespace foretrain
