#include "simulator/machine.h"

#include <numeric>

#include <gtest/gtest.h>

#include "simulator/replay.h"
#include "tests/simulator/hand_made.h"

namespace foretrain {
namespace {

using namespace hand_made;

constexpr double kExact = 1e-12; ///< seconds: sums of a few doubles around one

double sum(const TimeParts& parts) {
  double total = 0;
  for (const Seconds part : parts) total += part.value;
  return total;
}

double part(const TimeParts& parts, TimePart which) {
  return parts[static_cast<std::size_t>(which)].value;
}

Simulation run(const Program& program, const Durations& durations, bool record = false, TierRates rates = {}) {
  const Script script = build_script(program, durations, {!record});
  if (rates == TierRates{}) rates = tier_rates(script);
  const Result<Simulation> result = replay(script, rates, {record});
  EXPECT_TRUE(result) << (result ? "" : to_string(result.error()));
  return result ? *result : Simulation{};
}

Layout layout(int tp, int pp) {
  Layout made;
  made.tp = tp;
  made.pp = pp;
  return made;
}

/// x -> compute -> a -> all-reduce on the tp stream -> b -> compute -> y.
Block tensor_parallel_block() {
  Block block;
  const int x = buffer(block, "x", 0, BufferScope::input);
  const int a = buffer(block, "a", 100);
  const int b = buffer(block, "b", 50);
  const int y = buffer(block, "y", 0, BufferScope::output);
  const int dy = buffer(block, "dy", 0, BufferScope::grad_output);
  const int dx = buffer(block, "dx", 0, BufferScope::grad_input);
  block.forward = {compute(1, {x}, {a}), collective(Group::tp, Stream::tp, TimePart::tp, 500'000'000, {a}, {b}),
                   compute(2, {b}, {y})};
  block.backward = {compute(6, {a, dy}, {dx})};
  return block;
}

Block plain_block(double forward, double backward) {
  Block block;
  const int x = buffer(block, "x", 10, BufferScope::input);
  const int saved = buffer(block, "saved", 100);
  const int y = buffer(block, "y", 10, BufferScope::output);
  const int dy = buffer(block, "dy", 10, BufferScope::grad_output);
  const int dx = buffer(block, "dx", 10, BufferScope::grad_input);
  block.forward = {compute(forward, {x}, {saved, y})};
  block.backward = {compute(backward, {saved, x, dy}, {dx})};
  return block;
}

TEST(Machine, AComputeOpWaitsForTheCollectiveWhoseResultItReads) {
  Program program = program_of(layout(2, 1), {2}, tensor_parallel_block(), 1);
  program.roles[0].instructions = {slot(Pass::forward, 0), slot(Pass::backward, 0)};
  const Simulation out = run(program, PlainDurations{});
  EXPECT_NEAR(out.step_time.value, 1 + 0.5 + 2 + 6, kExact);
  EXPECT_NEAR(part(out.time, TimePart::compute), 9, kExact);
  EXPECT_NEAR(part(out.time, TimePart::tp), 0.5, kExact);
  EXPECT_NEAR(sum(out.time), out.step_time.value, kExact);
}

TEST(Machine, ACollectiveRunsBesideComputeThatDoesNotReadItsResult) {
  Block block = tensor_parallel_block();
  block.forward.insert(block.forward.begin() + 2, compute(0.3)); // issued behind the collective, reads nothing
  Program program = program_of(layout(2, 1), {2}, block, 1);
  program.roles[0].instructions = {slot(Pass::forward, 0), slot(Pass::backward, 0)};
  const Simulation out = run(program, PlainDurations{});
  EXPECT_NEAR(out.step_time.value, 1 + 0.5 + 2 + 6, kExact);
  EXPECT_NEAR(part(out.time, TimePart::tp), 0.2, kExact) << "0.3 of the collective is hidden";
}

TEST(Machine, ComputeGoesSlowerWhileATransferRunsOnTheRank) {
  Block block = tensor_parallel_block();
  block.forward.insert(block.forward.begin() + 2, compute(1));
  Program program = program_of(layout(2, 1), {2}, block, 1);
  program.roles[0].instructions = {slot(Pass::forward, 0), slot(Pass::backward, 0)};
  PlainDurations durations;
  durations.slowdown = 0.25;
  const Simulation out = run(program, durations);
  // In the 0.5 s of the collective 0.4 s of work is done, the other 0.6 s at full rate.
  EXPECT_NEAR(out.step_time.value, 1 + 0.5 + 0.6 + 2 + 6, kExact);
  EXPECT_NEAR(out.stages[0].slowed, 0.1, kExact);
  EXPECT_NEAR(out.stages[0].compute, 10, kExact);
}

TEST(Machine, ACollectiveGoesSlowerBesideCompute) {
  Block block = tensor_parallel_block();
  block.forward.insert(block.forward.begin() + 2, compute(0.4));
  Program program = program_of(layout(2, 1), {2}, block, 1);
  program.roles[0].instructions = {slot(Pass::forward, 0), slot(Pass::backward, 0)};
  PlainDurations durations;
  durations.beside = 0.5;
  // In the 0.4 s of compute 0.2 s of the collective is done, the other 0.3 s at full rate.
  EXPECT_NEAR(run(program, durations).step_time.value, 1 + 0.4 + 0.3 + 2 + 6, kExact);
}

TEST(Machine, ALayerIsNotFasterThanTheHostLaunchesIt) {
  Program program = program_of(layout(1, 1), {1}, plain_block(1, 2), 1);
  program.roles[0].instructions = {slot(Pass::forward, 0), slot(Pass::backward, 0)};
  PlainDurations durations;
  durations.floor = 1.5; // forward padded to 1.5, backward counts twice: 3
  program.blocks[0].backward[0].pass = Pass::backward;
  const Simulation out = run(program, durations);
  EXPECT_NEAR(out.step_time.value, 1.5 + 3, kExact);
  EXPECT_NEAR(part(out.time, TimePart::host), 0.5 + 1, kExact);
}

TEST(Machine, ACollectiveOfOneRankTakesNoTime) {
  Program program = program_of(layout(1, 1), {1}, tensor_parallel_block(), 1);
  program.roles[0].instructions = {slot(Pass::forward, 0), slot(Pass::backward, 0)};
  EXPECT_NEAR(run(program, PlainDurations{}).step_time.value, 9, kExact);
}

TEST(Machine, GpipeTakesMicroBatchesPlusStagesMinusOneTimesForwardAndBackward) {
  // facts of the schedule: (m + p - 1)(f + b), no transfer time (Huang et al. 2019, arXiv:1811.06965).
  Program program = program_of(layout(1, 4), {4}, plain_block(1, 2), 8);
  gpipe(program);
  const Simulation out = run(program, PlainDurations{});
  EXPECT_NEAR(out.step_time.value, (8 + 4 - 1) * 3.0, kExact);
  for (const StageRun& stage : out.stages) {
    EXPECT_NEAR(part(stage.parts, TimePart::bubble), 3 * 3.0, kExact);
    EXPECT_NEAR(sum(stage.parts), out.step_time.value, kExact);
  }
}

TEST(Machine, GpipePaysEachTransferOnceOnTheWayInAndOnceOnTheWayBack) {
  Program program = program_of(layout(1, 4), {4}, plain_block(1, 2), 8);
  gpipe(program);
  PlainDurations durations;
  durations.transfer_seconds = 0.1;
  durations.latency = 0.05;
  const Simulation out = run(program, durations);
  EXPECT_NEAR(out.step_time.value, 33 + 2 * 3 * 0.15, kExact);
  EXPECT_EQ(out.transfers, 2 * 3 * 8);
}

TEST(Machine, ABlockingTransferOccupiesComputeOfBothEnds) {
  Program program = program_of(layout(1, 2), {2}, plain_block(1, 2), 2, true);
  constexpr auto send = InstructionKind::send;
  constexpr auto receive = InstructionKind::receive;
  constexpr auto wait_send = InstructionKind::wait_send;
  constexpr auto wait_receive = InstructionKind::wait_receive;
  program.roles[0].instructions = {
      slot(Pass::forward, 0), move(send, Pass::forward, 0, 1), move(wait_send, Pass::forward, 0, 1),
      slot(Pass::forward, 1), move(send, Pass::forward, 1, 1), move(wait_send, Pass::forward, 1, 1)};
  program.roles[1].instructions = {
      move(receive, Pass::forward, 0, -1), move(wait_receive, Pass::forward, 0, -1), slot(Pass::forward, 0),
      move(receive, Pass::forward, 1, -1), move(wait_receive, Pass::forward, 1, -1), slot(Pass::forward, 1)};
  PlainDurations durations;
  durations.transfer_seconds = 0.5;
  const Simulation out = run(program, durations);
  EXPECT_NEAR(out.stages[0].finish, 1 + 0.5 + 1 + 0.5, kExact);
  EXPECT_NEAR(out.step_time.value, 1 + 0.5 + 1 + 0.5 + 1, kExact);
  EXPECT_NEAR(part(out.stages[0].parts, TimePart::pp), 1, kExact);
}

Instruction step_op(int number) {
  Instruction instruction;
  instruction.kind = InstructionKind::step;
  instruction.pass = Pass::step;
  instruction.step = number;
  return instruction;
}

// GPipe on two stages, f 1 and b 2, two micro-batches: the first stage has 0 to 9, the second 1 to 7.
TEST(Machine, WithPostValidationAStepIsTheLongestOwnSpan) {
  Program program = program_of(layout(1, 2), {2}, plain_block(1, 2), 2);
  gpipe(program);
  program.post_validation = true;
  program.roles[1].step = {compute(4)};
  program.roles[1].step_peak = {Bytes(0)};
  program.roles[1].instructions.push_back(step_op(0));
  PlainDurations durations;
  durations.transfer_seconds = 0.1;
  const Simulation out = run(program, durations);
  // The second stage begins at 1.1, its last gradient is sent at 7.2; the first ends at 5.2 + 2 + 2.
  EXPECT_NEAR(out.step_time.value, 7.2 + 4 - 1.1, kExact);
  EXPECT_NEAR(out.stages[1].finish, 7.2 + 4, kExact);
  EXPECT_EQ(out.critical_stage, 1);
  EXPECT_NEAR(part(out.time, TimePart::bubble), 0, kExact);
  for (const StageRun& stage : out.stages) EXPECT_NEAR(sum(stage.parts), out.step_time.value, kExact);
  program.post_validation = false;
  EXPECT_NEAR(run(program, durations).step_time.value, 7.2 + 4, kExact);
}

// What both ends sum at the step's end takes its time, but neither waits for the other to come to it.
TEST(Machine, WithPostValidationNoStageWaitsForAnotherAtTheEnd) {
  Program program = program_of(layout(1, 2), {2}, plain_block(1, 2), 2);
  gpipe(program);
  program.post_validation = true;
  for (Role& role : program.roles) {
    role.step = {collective(Group::embedding, Stream::gradients, TimePart::pp, 500'000'000), compute(1)};
    role.step_peak = {Bytes(0), Bytes(0)};
    for (const int number : {0, 1}) role.instructions.push_back(step_op(number));
  }
  const Simulation out = run(program, PlainDurations{});
  EXPECT_NEAR(out.step_time.value, 9 + 0.5 + 1, kExact);
  EXPECT_NEAR(part(out.stages[1].parts, TimePart::bubble), 3, kExact); // own span 6 + 0.5 + 1
  for (const StageRun& stage : out.stages) EXPECT_NEAR(sum(stage.parts), out.step_time.value, kExact);
}

TEST(Machine, TransfersOfOneRankShareItsPort) {
  // A gradient reduction of 3 s and an expert all-to-all of 1 s, both over the network, issued together: the port is
  // shared while both run (2 s for the all-to-all), then the reduction goes on alone: 2 + (3 - 1) = 4 s.
  Block block;
  const int x = buffer(block, "x", 0, BufferScope::input);
  const int a = buffer(block, "a", 0);
  const int b = buffer(block, "b", 0);
  block.forward = {compute(0, {x}, {a}),
                   collective(Group::data, Stream::gradients, TimePart::dp, 3'000'000'000, {a}, {b}),
                   collective(Group::data, Stream::ep, TimePart::ep, 1'000'000'000, {a}, {a})};
  Layout two;
  two.dp_shard = 2;
  Program program = program_of(two, {1, 2}, block, 1);
  program.roles[0].instructions = {slot(Pass::forward, 0)};
  PlainDurations durations;
  durations.collective_tier = 1;
  EXPECT_NEAR(run(program, durations).step_time.value, 4, 1e-9);
  EXPECT_NEAR(run(program, durations, false, {1e9, 2e9}).step_time.value, 3, 1e-9) << "a port of twice the rate";
}

TEST(Machine, ARankThatWaitsLendsItsShareOfAProcessor) {
  Program program = program_of(layout(1, 2), {2}, plain_block(1, 2), 2);
  gpipe(program);
  const Script script = build_script(program, PlainDurations{});
  const auto with = [&](int ranks_per_processor) {
    return replay(script, tier_rates(script), {true, ranks_per_processor}).value();
  };
  EXPECT_NEAR(with(1).step_time.value, 9, kExact); // three passes one after the other at each end, and all of stage 1
  const Simulation shared = with(2);
  // F0 alone 0.5; F1 beside F0 1; F1 and B0 of stage 1 alone 0.5 and 1; B1 beside B0 2; B1 of stage 0 alone 1.
  EXPECT_NEAR(shared.step_time.value, 6, kExact);
  for (const StageRun& stage : shared.stages) {
    EXPECT_NEAR(sum(stage.parts), 6, kExact);
    EXPECT_EQ(stage.slowed, 0);
  }
  EXPECT_NEAR(with(4).step_time.value, 6, kExact); // two ranks have two shares between them
}

TEST(Machine, MemoryFollowsIssueOrder) {
  Program program = program_of(layout(1, 2), {2}, plain_block(1, 2), 3);
  gpipe(program);
  for (Role& role : program.roles) {
    role.boundary = Bytes(10);
    role.persistent = {{"weights", MemoryPart::parameters, Bytes(1000)}};
  }
  const Simulation out = run(program, PlainDurations{}, true);
  // Stage 0 keeps x and `saved` of all three; x of its first block is nobody's receive, so only y comes and goes.
  EXPECT_EQ(out.stages[0].peak.value, 1000 + 3 * 100 + 10 + 10)
      << "three saved tensors, the gradient received and the one being written";
  EXPECT_EQ(out.stages[1].peak.value, 1000 + 3 * 120 + 10);
  std::int64_t highest = 0;
  for (std::size_t i = 0; i < out.stages[1].memory.size(); ++i) {
    highest = std::max(highest, out.stages[1].memory[i].peak.value);
    if (i > 0) {
      EXPECT_LT(out.stages[1].memory[i - 1].at, out.stages[1].memory[i].at);
    }
  }
  EXPECT_EQ(highest, out.stages[1].peak.value);
}

TEST(Machine, AReceiveWithoutItsSendIsAnErrorNotAHang) {
  Program program = program_of(layout(1, 2), {2}, plain_block(1, 2), 1);
  program.roles[1].instructions = {move(InstructionKind::receive, Pass::forward, 0, -1), slot(Pass::forward, 0)};
  const PlainDurations durations;
  const Script script = build_script(program, durations);
  const Result<Simulation> result = replay(script, tier_rates(script));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("rank 1 waits forever"), std::string::npos) << result.error().message;
}

TEST(Machine, APrefetchStartsWithItsBlockAndIsWaitedForWhereItIsNeeded) {
  Block block = plain_block(1, 2);
  Program program = program_of(Layout{}, {1}, block, 1);
  Layout two;
  two.dp_shard = 2;
  program.mesh = Mesh(two, {2});
  Chunk& chunk = program.roles[0].chunks[0];
  chunk.blocks = {0, 0, 0};
  chunk.layers = {0, 1, 2};
  ChunkOp gather;
  gather.pass = Pass::forward;
  gather.position = 0;
  gather.before = true;
  gather.op = collective(Group::shard, Stream::parameters, TimePart::dp, 1'500'000'000);
  gather.waits_for = 0; // starts with block 0 …
  gather.needed_at = 1; // … and block 1 needs it
  chunk.between = {gather};
  program.roles[0].instructions = {slot(Pass::forward, 0)};
  const Simulation out = run(program, PlainDurations{});
  EXPECT_NEAR(out.step_time.value, 1.5 + 1 + 1, kExact);
  EXPECT_NEAR(part(out.time, TimePart::dp), 0.5, kExact);
}

TEST(Machine, TheStepsEndWaitsForAllStreams) {
  Program program = program_of(layout(2, 1), {2}, plain_block(1, 2), 1);
  ChunkOp reduce;
  reduce.pass = Pass::backward;
  reduce.op = collective(Group::tp, Stream::gradients, TimePart::dp, 4'000'000'000);
  program.roles[0].chunks[0].between = {reduce};
  Op optimizer = compute(0.5);
  optimizer.part = TimePart::optimizer;
  program.roles[0].step = {optimizer};
  Instruction end;
  end.kind = InstructionKind::step;
  end.step = 0;
  program.roles[0].instructions = {slot(Pass::forward, 0), slot(Pass::backward, 0), end};
  const Simulation out = run(program, PlainDurations{});
  EXPECT_NEAR(out.step_time.value, 1 + 2 + 4 + 0.5, kExact);
  EXPECT_NEAR(part(out.time, TimePart::dp), 4, kExact);
  EXPECT_NEAR(part(out.time, TimePart::optimizer), 0.5, kExact);
}

TEST(Machine, FusingComputeOpsChangesNothingButTheNumberOfSteps) {
  Block block = plain_block(1, 2);
  for (int i = 0; i < 5; ++i) {
    block.forward.push_back(compute(0.125));
    block.backward.push_back(compute(0.25));
  }
  Program program = program_of(layout(1, 4), {4}, block, 6);
  gpipe(program);
  PlainDurations durations;
  durations.transfer_seconds = 0.25;
  const Simulation fused = run(program, durations);
  const Simulation apart = run(program, durations, true);
  EXPECT_NEAR(fused.step_time.value, apart.step_time.value, kExact);
  EXPECT_EQ(fused.stages[1].peak, apart.stages[1].peak);
  EXPECT_LT(fused.steps, apart.steps);
}

// Sanity on every run (astra-sim/astra-sim#222, #215, #318, #139: runs that end at time 0, lose ranks, or whose compute
// does not depend on the number of devices).
TEST(Machine, WorkIsConservedAndHalvingTheDevicesDoublesCompute) {
  Program four = program_of(layout(1, 4), {4}, plain_block(1, 2), 8);
  gpipe(four);
  Program two = program_of(layout(1, 2), {2}, plain_block(2, 4), 8); // twice the layers per stage
  gpipe(two);
  const Simulation of_four = run(four, PlainDurations{});
  const Simulation of_two = run(two, PlainDurations{});
  EXPECT_EQ(of_four.ranks, 4);
  EXPECT_EQ(of_two.ranks, 2);
  double total_four = 0;
  double total_two = 0;
  for (const StageRun& stage : of_four.stages) total_four += stage.compute;
  for (const StageRun& stage : of_two.stages) total_two += stage.compute;
  EXPECT_NEAR(total_four, 4 * 8 * 3, kExact);
  EXPECT_NEAR(total_two, total_four, kExact);
  EXPECT_GT(of_four.step_time.value, 0);
  EXPECT_NEAR(of_two.stages[0].compute, 2 * of_four.stages[0].compute, kExact);
}

TEST(Machine, TwoRunsAreEqual) {
  Program program = program_of(layout(1, 4), {4}, plain_block(1, 2), 8);
  gpipe(program);
  PlainDurations durations;
  durations.transfer_seconds = 0.1;
  EXPECT_EQ(run(program, durations, true), run(program, durations, true));
}

} // namespace
} // namespace foretrain
