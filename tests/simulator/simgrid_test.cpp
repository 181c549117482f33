#include "simulator/simgrid/engine.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "simulator/replay.h"
#include "simulator/simgrid/child.h"
#include "simulator/simgrid/protocol.h"
#include "tests/simulator/hand_made.h"

namespace foretrain {
namespace {

using namespace hand_made;

/// SimGrid merges events within 1e-9 s and rounds payloads to whole bytes.
constexpr double kSimGridSeconds = 1e-6;

ClusterSpec cluster_of(const std::vector<int>& fanouts) {
  ClusterSpec cluster;
  for (const int fanout : fanouts) {
    TierSpec tier;
    tier.name = cluster.tiers.empty() ? "node" : cluster.tiers.size() == 1 ? "leaf" : "spine";
    tier.fanout = fanout;
    cluster.tiers.push_back(tier);
  }
  return cluster;
}

std::string run_here(const Program& program, const ClusterSpec& cluster, const Durations& durations, bool fold) {
  const Script script = build_script(program, durations);
  const World world = all_ranks(program, script.groups_used, fold);
  const Topology topology(cluster, program.mesh, world, tier_rates(script));
  return reply_line(7, run_on_simgrid(script, world, topology));
}

/// In a process of its own, as the worker does.
Result<Simulation> run(const Program& program, const ClusterSpec& cluster, const Durations& durations,
                       bool fold = false) {
  FORETRAIN_TRY(const std::string text, run_in_child([&] { return run_here(program, cluster, durations, fold); }));
  FORETRAIN_TRY(Reply reply, reply_from(text));
  return std::move(reply.result);
}

double seconds(const Result<Simulation>& result) {
  EXPECT_TRUE(result) << (result ? "" : to_string(result.error()));
  return result ? result->step_time.value : -1;
}

/// One reduction over `group`.
Block reduction(Group group, std::int64_t bytes) {
  Block block;
  const int x = buffer(block, "x", 0, BufferScope::input);
  const int a = buffer(block, "a", 0);
  block.forward = {compute(1, {x}, {a}), collective(group, Stream::gradients, TimePart::dp, bytes, {a}, {a})};
  return block;
}

/// Two data-parallel groups {0, 2} and {1, 3}: one device per node, two nodes per leaf, two leaves. Both groups cross
/// the leaves' uplinks. Stage 0 is the first group.
Program two_groups(std::int64_t first, std::int64_t second) {
  Layout layout;
  layout.pp = 2;
  layout.dp_replicate = 2;
  layout.placement = {Axis::tp, Axis::cp, Axis::pp, Axis::dp};
  Program program = program_of(layout, {1, 2, 2}, reduction(Group::replicate, first), 1);
  Block other = reduction(Group::replicate, second);
  finish_block(other, false);
  program.blocks.push_back(other);
  program.roles[1].chunks[0].blocks = {1};
  for (Role& role : program.roles) role.instructions = {slot(Pass::forward, 0)};
  return program;
}

PlainDurations across_leaves() {
  PlainDurations durations;
  durations.collective_tier = 2;
  return durations;
}

TEST(SimGrid, AgreesWithReplayWhereNothingContends) {
  Block block;
  const int x = buffer(block, "x", 0, BufferScope::input);
  const int a = buffer(block, "a", 0);
  const int y = buffer(block, "y", 0, BufferScope::output);
  const int dy = buffer(block, "dy", 0, BufferScope::grad_output);
  const int dx = buffer(block, "dx", 0, BufferScope::grad_input);
  block.forward = {compute(1e-3, {x}, {a}), collective(Group::tp, Stream::tp, TimePart::tp, 300'000, {a}, {a}),
                   compute(1e-3, {a}, {y})};
  block.backward = {compute(2e-3, {dy}, {a}), collective(Group::tp, Stream::tp, TimePart::tp, 300'000, {a}, {a}),
                    compute(2e-3, {a}, {dx})};
  Layout layout;
  layout.tp = 2;
  layout.pp = 4;
  layout.dp_shard = 2;
  Program program = program_of(layout, {2, 8}, block, 6);
  gpipe(program);
  PlainDurations durations;
  durations.latency = 5e-6;
  durations.slowdown = 0.1;
  durations.transfer_seconds = 4e-4;
  const Script script = build_script(program, durations);
  const Result<Simulation> replayed = replay(script, tier_rates(script));
  const double simulated = seconds(run(program, cluster_of({2, 8}), durations));
  EXPECT_NEAR(simulated / seconds(replayed), 1, 1e-5);
  EXPECT_NEAR(seconds(run(program, cluster_of({2, 8}), durations, true)), simulated, kSimGridSeconds) << "folded";
}

TEST(SimGrid, OneTransferAloneTakesItsUndisturbedTime) {
  PlainDurations durations = across_leaves();
  durations.latency = 0.25;
  EXPECT_NEAR(seconds(run(two_groups(1'000'000'000, 0), cluster_of({1, 2, 2}), durations)), 1 + 0.25 + 1,
              kSimGridSeconds);
}

TEST(SimGrid, TwoGroupsShareAnUplinkMaxMin) {
  ClusterSpec cluster = cluster_of({1, 2, 2});
  const PlainDurations durations = across_leaves();
  EXPECT_NEAR(seconds(run(two_groups(1'000'000'000, 1'000'000'000), cluster, durations)), 1 + 1, kSimGridSeconds)
      << "an uplink for both";
  cluster.tiers[1].oversubscription = 2; // one uplink's worth for two
  EXPECT_NEAR(seconds(run(two_groups(1'000'000'000, 1'000'000'000), cluster, durations)), 1 + 2, kSimGridSeconds);
  // The short one has half the link until it is done after 2 s; the long one has 2e9 B left and the whole link.
  const Result<Simulation> uneven = run(two_groups(3'000'000'000, 1'000'000'000), cluster, durations);
  ASSERT_TRUE(uneven);
  EXPECT_NEAR(uneven->stages[1].finish, 1 + 2, kSimGridSeconds);
  EXPECT_NEAR(uneven->stages[0].finish, 1 + 4, kSimGridSeconds);
  ASSERT_FALSE(uneven->groups.empty());
  EXPECT_NEAR(uneven->groups[0].seconds, 2 + 4, kSimGridSeconds);
  EXPECT_NEAR(uneven->groups[0].undisturbed, 1 + 3, kSimGridSeconds);
}

TEST(SimGrid, ReportsTheBusiestLinkFirst) {
  ClusterSpec cluster = cluster_of({1, 2, 2});
  cluster.tiers[1].oversubscription = 2;
  const Result<Simulation> result = run(two_groups(1'000'000'000, 1'000'000'000), cluster, across_leaves());
  ASSERT_TRUE(result);
  ASSERT_FALSE(result->links.empty());
  EXPECT_EQ(result->links[0].name.substr(0, 4), "leaf");
  EXPECT_NEAR(result->links[0].bytes, 2e9, 1);
  EXPECT_NEAR(result->links[0].utilisation, 2.0 / 3, 1e-6) << "full for 2 s of 3";
}

TEST(SimGrid, BackgroundLoadOfALinkCounts) {
  ClusterSpec cluster = cluster_of({1, 2, 2});
  cluster.tiers[2].background_load = 0.75; // a quarter of two links' worth: half a link for two transfers
  EXPECT_NEAR(seconds(run(two_groups(1'000'000'000, 1'000'000'000), cluster, across_leaves())), 1 + 4, kSimGridSeconds);
}

TEST(SimGrid, FoldingCopiesChangesNothingUnderContention) {
  Layout layout;
  layout.tp = 4;
  layout.dp_replicate = 4;
  // Four devices per node, two nodes per leaf, two leaves with thin uplinks; every device reduces over its own group.
  Program program = program_of(layout, {4, 2, 2}, reduction(Group::replicate, 1'000'000'000), 1);
  for (Role& role : program.roles) role.instructions = {slot(Pass::forward, 0)};
  ClusterSpec cluster = cluster_of({4, 2, 2});
  cluster.tiers[1].oversubscription = 4;
  ASSERT_TRUE(tp_ranks_are_copies(program.mesh));
  const Result<Simulation> all = run(program, cluster, across_leaves(), false);
  const Result<Simulation> folded = run(program, cluster, across_leaves(), true);
  ASSERT_TRUE(all && folded);
  EXPECT_EQ(all->ranks, 16);
  EXPECT_EQ(folded->ranks, 4);
  EXPECT_NEAR(folded->step_time.value, all->step_time.value, kSimGridSeconds);
  EXPECT_GT(all->step_time.value, 1 + 1 + 0.1) << "contention is there";
}

TEST(SimGrid, TwoRunsGiveTheSameBytes) {
  ClusterSpec cluster = cluster_of({1, 2, 2});
  cluster.tiers[1].oversubscription = 3;
  const Program program = two_groups(3'000'000'001, 1'000'000'007);
  const PlainDurations durations = across_leaves();
  const auto once = [&] { return run_in_child([&] { return run_here(program, cluster, durations, false); }); };
  const Result<std::string> first = once();
  const Result<std::string> second = once();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
}

TEST(SimGrid, ATransferThatNobodyAnswersIsAnError) {
  Program program = two_groups(1, 1);
  program.roles[0].instructions = {slot(Pass::forward, 0), move(InstructionKind::send, Pass::forward, 0, 1)};
  const Result<Simulation> result = run(program, cluster_of({1, 2, 2}), across_leaves());
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("waits forever"), std::string::npos);
}

TEST(Child, ThatDiesIsAnErrorWithItsSignal) {
  const Result<std::string> result = run_in_child([]() -> std::string { std::abort(); });
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("signal 6"), std::string::npos) << result.error().message;
}

TEST(Topology, RailsSendDetoursThroughTheNeighbourOnTheOtherRail) {
  Layout layout;
  layout.tp = 2;
  layout.dp_shard = 2;
  Program program = program_of(layout, {2, 2}, reduction(Group::data, 1), 1);
  const World world = all_ranks(program, {}, false);
  ClusterSpec cluster = cluster_of({2, 2});
  cluster.tiers[1].fabric = Fabric::rail;
  const Topology topology(cluster, program.mesh, world, {1, 1});
  const auto names = [&](int from, int to) {
    std::vector<int> links;
    topology.route(from, to, 1, links);
    std::string text;
    for (const int link : links) text += topology.links()[static_cast<std::size_t>(link)].name + "; ";
    return text;
  };
  EXPECT_EQ(names(0, 2), "rank 0 to network; rank 2 from network; ");
  EXPECT_EQ(names(0, 3), "rank 0 to node; rank 1 from node; rank 1 to network; rank 3 from network; ");
  EXPECT_TRUE(topology.detours());
}

TEST(Topology, UplinksAreThinnedByOversubscriptionAndBackgroundLoad) {
  Layout layout;
  layout.dp_shard = 16;
  Program program = program_of(layout, {2, 4, 2}, reduction(Group::data, 1), 1);
  const World world = all_ranks(program, {}, false);
  ClusterSpec cluster = cluster_of({2, 4, 2});
  cluster.tiers[1].oversubscription = 4;
  cluster.tiers[1].background_load = 0.5;
  cluster.tiers[2].background_load = 0.25;
  const Topology topology(cluster, program.mesh, world, {10, 4, 4});
  std::vector<int> links;
  topology.route(0, 15, 2, links);
  ASSERT_EQ(links.size(), 4U);
  const auto capacity = [&](std::size_t i) { return topology.links()[static_cast<std::size_t>(links[i])].capacity; };
  EXPECT_DOUBLE_EQ(capacity(0), 4 * 0.5) << "port towards the network";
  EXPECT_DOUBLE_EQ(capacity(1), 8 * 4 * 0.75 / 4) << "eight devices below the leaf";
}

} // namespace
} // namespace foretrain
