#include "planner/compare.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "planner/measured_run.h"

namespace foretrain {
namespace {

const Comparison* find(const std::vector<Comparison>& rows, const std::string& item, std::optional<int> rank) {
  for (const Comparison& row : rows)
    if (row.item == item && row.rank == rank) return &row;
  return nullptr;
}

/// Two ranks on two stages; the second waits for the first.
RunFacts facts() {
  RunFacts run;
  run.step_seconds = {1.0, 1.2, 1.1};
  run.rank_seconds = {{1.0, 1.1, 1.0}, {1.0, 1.2, 1.1}};
  run.peak_bytes = {100, std::nullopt};
  run.stage = {0, 1};
  run.ops = {{0, "forward ffn_up", "compute", 0.3, 0.4},
             {0, "forward ffn_up", "compute", 0.3, 0.5},
             {1, "forward wait_receive", "pp", 0.1, 0.6}};
  return run;
}

Simulation simulation() {
  Simulation result;
  result.stages.resize(2);
  result.stages[0].parts[static_cast<std::size_t>(TimePart::compute)] = Seconds(0.8);
  result.stages[1].parts[static_cast<std::size_t>(TimePart::pp)] = Seconds(0.1);
  result.stages[1].parts[static_cast<std::size_t>(TimePart::bubble)] = Seconds(0.3);
  return result;
}

TEST(Compare, PutsThePromiseBesideTheMeasurement) {
  Prediction prediction;
  prediction.step_time = Seconds(0.99);
  prediction.memory.resize(2);
  prediction.memory[0].allocated = Bytes(90);
  const Simulation simulated = simulation();
  const std::vector<Comparison> rows = compare(facts(), prediction, &simulated);

  const Comparison* step = find(rows, "step_time", std::nullopt);
  ASSERT_NE(step, nullptr);
  EXPECT_DOUBLE_EQ(step->measured, 1.1); // median
  EXPECT_NEAR(*step->error_percent(), -10, 1e-9);
  const Comparison* peak = find(rows, "peak_allocated", 0);
  ASSERT_NE(peak, nullptr);
  EXPECT_NEAR(*peak->error_percent(), -10, 1e-9);
  EXPECT_EQ(find(rows, "peak_allocated", 1), nullptr); // not counted

  const Comparison* compute = find(rows, "time/compute", 0);
  ASSERT_NE(compute, nullptr);
  EXPECT_DOUBLE_EQ(compute->predicted, 0.8);
  EXPECT_DOUBLE_EQ(compute->measured, 0.9);
  const Comparison* pipeline = find(rows, "time/pipeline", 1);
  ASSERT_NE(pipeline, nullptr);
  EXPECT_DOUBLE_EQ(pipeline->predicted, 0.4); // the transfer and the wait for the stage before
  EXPECT_DOUBLE_EQ(pipeline->measured, 0.6);
  const Comparison* rest = find(rows, "time/other", 1);
  ASSERT_NE(rest, nullptr);
  EXPECT_NEAR(rest->measured, 0.5, 1e-12); // of the rank's median step, what is in no op

  const Comparison* op = find(rows, "op/forward ffn_up", 0);
  ASSERT_NE(op, nullptr);
  EXPECT_DOUBLE_EQ(op->predicted, 0.6);
  EXPECT_DOUBLE_EQ(op->measured, 0.9);
}

TEST(Compare, SaysNothingOfWhatWasNotMeasured) {
  RunFacts run;
  run.stage = {0};
  run.rank_seconds.resize(1);
  run.peak_bytes.resize(1);
  EXPECT_TRUE(compare(run, {}, nullptr).empty());
  EXPECT_EQ((Comparison{"x", std::nullopt, "s", 1, 0}).error_percent(), std::nullopt);
}

class ReadRun : public testing::Test {
protected:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() / ("foretrain-measured-" + std::to_string(::getpid()) + ".json");
  }
  void TearDown() override { std::filesystem::remove(file_); }
  void write(const std::string& text) const { std::ofstream(file_, std::ios::binary) << text; }
  std::filesystem::path file_;
};

constexpr const char* kRun =
    R"({"format": "foretrain-run 1", "torch": "2.6.0", "world": 2, "warmup": 1, "plan": {}, "steps": 2}
{"step": 0, "rank": 0, "loss": 1.0, "step_time_s": 9.0, "peak_allocated_bytes": 10}
{"step": 0, "rank": 1, "loss": 0.5, "step_time_s": 8.0, "peak_allocated_bytes": 30}
{"step": 1, "rank": 1, "loss": 0.25, "step_time_s": 2.0, "peak_allocated_bytes": 20, "began_s": 5.5,
)";

TEST_F(ReadRun, AddsUpTheRanksAndLeavesOutTheWarmUp) {
  std::string text = kRun;
  text.pop_back(); // the last line goes on
  write(text + R"( "ops": [{"op": "a", "start_s": 0.5, "end_s": 0.75}]}
{"step": 1, "rank": 0, "loss": 0.5, "step_time_s": 1.0, "peak_allocated_bytes": 40}
{"rank": 1, "op_times": {"samples": 3, "median_s": [0.25], "p10_s": [0.2], "p90_s": [0.3]}}
{"rank": 0, "error": "rank 0, step 2: gone"}
{"summary": {"failure": "rank 1: was ended"}}
{"step": 2, "rank": 0, "loss")");
  const auto run = read_run(file_);
  ASSERT_TRUE(run) << to_string(run.error());
  EXPECT_EQ(run->loss, (std::vector<double>{1.5, 0.75}));
  EXPECT_EQ(run->step_seconds, (std::vector<double>{9, 2}));
  EXPECT_EQ(run->step_time(), 2);
  EXPECT_EQ(run->step_time(0), 1);
  EXPECT_EQ(run->ranks[0].peak_bytes, 40);
  EXPECT_EQ(run->ranks[1].peak_bytes, 30);
  ASSERT_EQ(run->ranks[1].ops.size(), 1U);
  EXPECT_EQ(run->ranks[1].ops[0].samples, 3);
  EXPECT_EQ(run->ranks[1].ops[0].p90, 0.3);
  ASSERT_EQ(run->ranks[1].trace.size(), 1U);
  EXPECT_EQ(run->ranks[1].trace[0].end, 0.75);
  EXPECT_EQ(run->ranks[1].trace_began, 5.5);
  EXPECT_EQ(run->ranks[0].error, "rank 0, step 2: gone");
  EXPECT_EQ(run->failure, "rank 1: was ended");
  EXPECT_EQ(run->environment["torch"], "2.6.0");
  EXPECT_FALSE(run->environment.contains("plan"));
}

TEST_F(ReadRun, SaysWhatIsNoRun) {
  EXPECT_FALSE(read_run(file_));
  for (const char* text : {"nonsense\n", "{\"step\": 1}\n", "{\"rank\": \"a\", \"step\": 0}\n"}) {
    write(text);
    const auto run = read_run(file_);
    ASSERT_FALSE(run) << text;
    EXPECT_NE(run.error().where.find(":1"), std::string::npos) << run.error().where;
  }
  write("");
  const auto empty = read_run(file_);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->step_time(), 0);
}

} // namespace
} // namespace foretrain
