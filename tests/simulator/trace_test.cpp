#include "simulator/trace.h"

#include <set>

#include <gtest/gtest.h>

#include "core/base/json.h"
#include "simulator/replay.h"
#include "tests/simulator/hand_made.h"

namespace foretrain {
namespace {

using namespace hand_made;

TEST(Trace, IsJsonWithAProcessPerStageAndAThreadPerStream) {
  Block block;
  const int x = buffer(block, "x", 0, BufferScope::input);
  const int a = buffer(block, "a", 64);
  const int dy = buffer(block, "dy", 0, BufferScope::grad_output);
  block.forward = {compute(1e-3, {x}, {a}), collective(Group::tp, Stream::tp, TimePart::tp, 500'000, {a}, {a})};
  block.backward = {compute(2e-3, {a, dy}, {})};
  Layout layout;
  layout.tp = 2;
  layout.pp = 2;
  Program program = program_of(layout, {4}, block, 2);
  gpipe(program);
  const PlainDurations durations;
  const Script script = build_script(program, durations, {false});
  const Result<Simulation> simulation = replay(script, tier_rates(script), {true});
  ASSERT_TRUE(simulation);

  const Result<Json> json = parse_json(chrome_trace(*simulation), "trace");
  ASSERT_TRUE(json) << to_string(json.error());
  std::set<int> processes;
  std::set<std::string> threads;
  int memory = 0;
  int starts = 0;
  int ends = 0;
  double last = 0;
  for (const Json& event : (*json)["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "M" && event["name"] == "process_name") processes.insert(event["pid"].get<int>());
    if (phase == "M" && event["name"] == "thread_name") threads.insert(event["args"]["name"].get<std::string>());
    if (phase == "C") ++memory;
    if (phase == "s") ++starts;
    if (phase == "f") ++ends;
    if (phase == "X") last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(processes, (std::set<int>{0, 1}));
  EXPECT_TRUE(threads.count("compute") && threads.count("tp") && threads.count("send forward"));
  EXPECT_GT(memory, 4);
  EXPECT_EQ(starts, 4);
  EXPECT_EQ(ends, 4);
  EXPECT_NEAR(last, simulation->step_time.value * 1e6, 0.01) << "microseconds, three decimals";
}

TEST(Trace, OfARunThatWasNotRecordedHasNoBars) {
  Simulation simulation;
  simulation.stages.resize(1);
  const Result<Json> json = parse_json(chrome_trace(simulation), "trace");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["traceEvents"].size(), 1U);
}

} // namespace
} // namespace foretrain
