// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/traffic.h"

#include <gtest/gtest.h>

namespace foretrain::gui {
namespace {

/// Two nodes of four devices: tp inside a node, two stages on the two nodes.
struct TrafficTest : testing::Test {
  TrafficTest() {
    layout.tp = 2;
    layout.dp_shard = 2;
    layout.pp = 2;
    simulation.step_time = Seconds(10);
    simulation.stages.resize(2);
    add(0, TimePart::tp, 1, 3);
    add(0, TimePart::tp, 2, 4); // overlaps: three seconds together
    add(0, TimePart::pp, 4, 5);
    add(1, TimePart::tp, 3, 4);
    simulation.events.push_back({0, Lane::compute, TimePart::compute, "F", 0, 10, 0, 0});
  }
  void add(int stage, TimePart part, double start, double end) {
    simulation.events.push_back({stage, kTransfer, part, "t", start, end, 0, 0});
  }
  static constexpr Lane kTransfer = Lane::tp;
  Layout layout;
  Simulation simulation;
};

TEST_F(TrafficTest, SaysWhoUsesWhichLinksWhen) {
  const Traffic traffic(simulation, Mesh(layout, {4, 2}));
  EXPECT_TRUE(traffic.at(0, 0.5).empty());
  EXPECT_EQ(traffic.at(0, 2.5), (std::vector<Traffic::Use>{{TimePart::tp, 0}}));
  EXPECT_EQ(traffic.at(0, 4.5), (std::vector<Traffic::Use>{{TimePart::pp, 1}})) << "between the nodes";
  EXPECT_TRUE(traffic.at(7, 2.5).empty());
  EXPECT_DOUBLE_EQ(traffic.share(0, 2.5), 0.5) << "the first stage's";
  EXPECT_DOUBLE_EQ(traffic.share(0, 3.5), 1);
  EXPECT_DOUBLE_EQ(traffic.share(1, 4.5), 0.5);
}

TEST_F(TrafficTest, AveragesOverTheStepWithoutCountingTwice) {
  const Traffic traffic(simulation, Mesh(layout, {4, 2}));
  EXPECT_DOUBLE_EQ(traffic.average(0), (3.0 + 1.0) / 2 / 10);
  EXPECT_DOUBLE_EQ(traffic.average(1), 1.0 / 2 / 10);
  EXPECT_DOUBLE_EQ(Traffic().average(0), 0);
}

TEST_F(TrafficTest, LastsUntilAllStagesAreDoneAndAveragesOverOneStep) {
  simulation.stages[1].finish = 14; // it began its step at four, and no stage waits for it
  const Traffic traffic(simulation, Mesh(layout, {4, 2}));
  EXPECT_DOUBLE_EQ(traffic.end(), 14);
  EXPECT_DOUBLE_EQ(traffic.average(0), (3.0 + 1.0) / 2 / 10);
}

} // namespace
} // namespace foretrain::gui
