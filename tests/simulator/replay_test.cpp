#include "simulator/replay.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "core/program/memory.h"
#include "core/program/schedules/all.h"
#include "simulator/slots.h"
#include "tests/simulator/lowered.h"

namespace foretrain {
namespace {

using lowered::Case;

Case dense(int tp, int pp, int dp, int batch, const std::string& schedule = "1f1b", int chunks = 1) {
  Plan plan = lowered::plan_of("llama3-8b", std::max(8, tp * pp * dp), 8192, batch);
  plan.layout.tp = tp;
  plan.layout.pp = pp;
  plan.layout.dp_shard = dp;
  plan.layout.sequence_parallel = tp > 1;
  plan.layout.schedule = {schedule, chunks};
  return lowered::lower_case(plan);
}

Simulation run(const Case& c, const CostModel& cost, ReplayOptions options = {}) {
  const Result<Simulation> result = replay(c.program, cost, c.semantics, options);
  EXPECT_TRUE(result) << (result ? "" : to_string(result.error()));
  return result ? *result : Simulation{};
}

/// Time of a few instructions of one role on its own.
double alone(const Case& c, const CostModel& cost, int stage, std::vector<Instruction> instructions) {
  Program program = c.program;
  for (Role& role : program.roles) role.instructions.clear();
  program.roles[static_cast<std::size_t>(stage)].instructions = std::move(instructions);
  const Result<Simulation> result = replay(program, cost, c.semantics);
  EXPECT_TRUE(result);
  return result ? result->step_time.value : 0;
}

Instruction slot(Pass pass, int chunk, int micro_batch) {
  Instruction instruction;
  instruction.pass = pass;
  instruction.chunk = chunk;
  instruction.micro_batch = micro_batch;
  return instruction;
}

/// The same plan at slot granularity: each slot as long as it is on a rank of its own.
double by_slots(const Case& c, const CostModel& cost) {
  const Layout& layout = c.plan.layout;
  const Schedule& schedule = *schedules().find(layout.schedule.kind);
  const ScheduleShape shape{layout.pp, layout.schedule.chunks, c.program.micro_batches};
  const SlotOrder order = make_slot_order(schedule, shape, c.program.blocking_p2p);
  const int middle = 1; // neither first nor last micro-batch
  SlotCosts costs;
  const CostDurations durations(cost, c.program, c.semantics);
  for (int stage = 0; stage < layout.pp; ++stage) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      costs.forward.push_back(alone(c, cost, stage, {slot(Pass::forward, chunk, middle)}));
      if (c.program.split_backward) {
        costs.input.push_back(alone(c, cost, stage, {slot(Pass::input, chunk, middle)}));
        costs.weight.push_back(alone(c, cost, stage, {slot(Pass::weight, chunk, middle)}));
      } else {
        costs.backward.push_back(alone(c, cost, stage, {slot(Pass::backward, chunk, middle)}));
      }
    }
    std::vector<Instruction> tail;
    for (const Instruction& instruction : c.program.roles[static_cast<std::size_t>(stage)].instructions)
      if (instruction.kind == InstructionKind::step) tail.push_back(instruction);
    const int next = (stage + 1) % layout.pp;
    const int tier = c.program.mesh.tier_between(c.program.mesh.on_stage(0, stage), c.program.mesh.on_stage(0, next));
    costs.p2p.push_back(durations.transfer(c.program.roles[static_cast<std::size_t>(stage)].boundary, tier).duration() +
                        (c.program.blocking_p2p ? durations.restart() : 0));
  }
  costs.apart = c.program.post_validation;
  SlotWorkspace workspace;
  SlotResult result;
  replay_slots(order, costs, workspace, result);
  return result.seconds;
}

/// Without the ops of the step's end, which slots do not have.
Case without_step(Case c) {
  for (Role& role : c.program.roles)
    role.instructions.erase(std::remove_if(role.instructions.begin(), role.instructions.end(),
                                           [](const Instruction& i) { return i.kind == InstructionKind::step; }),
                            role.instructions.end());
  return c;
}

/// The bound between the two granularities that refinement of the best relies on.
constexpr double kSlotsAgainstOps = 0.01;

TEST(Replay, AgreesWithSlotReplayFor1F1B) {
  const Case c = without_step(dense(8, 4, 1, 16));
  const CostModel cost = lowered::cost_of(c);
  EXPECT_NEAR(run(c, cost).step_time.value / by_slots(c, cost), 1, kSlotsAgainstOps);
}

// NVIDIA/Megatron-LM core/pipeline_parallel/p2p_communication.py: torch.cuda.synchronize() after each batch of blocking
// transfers. In 1F1B a steady step of two stages has two batches, of which each stage waits; nothing runs ahead then.
TEST(Replay, LaunchesAfreshAfterBlockingTransfers) {
  Case c = without_step(dense(8, 2, 1, 32));
  ASSERT_TRUE(c.program.blocking_p2p);
  const CostModel cost = lowered::cost_of(c);
  const double waits = run(c, cost).step_time.value;
  c.semantics.schedules = {"1f1b"};
  const double ahead = run(c, cost).step_time.value;
  const double restart = kRestart * c.semantics.host_per_layer.value;
  const int steps = c.program.micro_batches;
  EXPECT_GE(waits - ahead, (steps - 1) * restart);
  EXPECT_LE(waits - ahead, 2 * (steps + 1) * restart);
}

// deepspeedai/DeepSpeed runtime/pipe/engine.py is_pipe_partitioned; Narayanan et al. 2021, arXiv:2104.04473,
// section 4.1.
TEST(Replay, TensorParallelRanksSendTheirPartsBetweenStages) {
  Case c = dense(8, 4, 1, 16);
  c.plan.layout.sequence_parallel = false;
  c.program = lower(c.plan, c.semantics);
  const CostModel cost = lowered::cost_of(c);
  const Bytes boundary = c.program.roles.front().boundary;
  constexpr int kNetwork = 1;
  const auto wire = [&] { return CostDurations(cost, c.program, c.semantics).transfer(boundary, kNetwork).wire; };
  const Wire whole = wire();
  const double step = run(c, cost).step_time.value;
  c.semantics.p2p_parts = true;
  c.program = lower(c.plan, c.semantics);
  EXPECT_EQ(c.program.roles.front().boundary, boundary) << "it is put together again";
  const Wire parts = wire();
  EXPECT_DOUBLE_EQ(parts.bytes_per_rank[kNetwork], whole.bytes_per_rank[kNetwork] / 8);
  EXPECT_DOUBLE_EQ(parts.seconds, whole.seconds / 8);
  EXPECT_DOUBLE_EQ(
      parts.latency,
      whole.latency +
          cost.collective(Collective::all_gather, c.program.mesh.shape(Group::tp), DType::bf16, boundary).seconds);
  EXPECT_LT(run(c, cost).step_time.value, step);
  c.plan.layout.sequence_parallel = true; // each rank has its own tokens anyway
  EXPECT_EQ(lower(c.plan, c.semantics).boundary_parts, 1);
}

TEST(Replay, AgreesWithSlotReplayForInterleaved) {
  const Case c = without_step(dense(8, 4, 1, 16, "interleaved", 2));
  const CostModel cost = lowered::cost_of(c);
  EXPECT_NEAR(run(c, cost).step_time.value / by_slots(c, cost), 1, kSlotsAgainstOps);
}

TEST(Replay, AgreesWithSlotReplayForSplitBackward) {
  const Case c = without_step(dense(8, 4, 1, 16, "zb-h1"));
  const CostModel cost = lowered::cost_of(c);
  EXPECT_NEAR(run(c, cost).step_time.value / by_slots(c, cost), 1, kSlotsAgainstOps);
}

TEST(Replay, AgreesWithSlotReplayForStepsApart) {
  for (const char* id : {"zb-h1", "zb-h2"}) {
    Case c = without_step(dense(8, 4, 1, 16, id));
    const CostModel cost = lowered::cost_of(c);
    const double together = run(c, cost).step_time.value;
    c.program.post_validation = true;
    const double apart = run(c, cost).step_time.value;
    EXPECT_NEAR(apart / by_slots(c, cost), 1, kSlotsAgainstOps) << id;
    EXPECT_LE(apart, together) << id;
  }
}

TEST(Replay, PartsAddUpToTheStepOnEveryStage) {
  const Case c = dense(2, 2, 2, 16);
  const CostModel cost = lowered::cost_of(c);
  const Simulation out = run(c, cost);
  ASSERT_EQ(out.stages.size(), 2U);
  for (const StageRun& stage : out.stages) {
    double sum = 0;
    for (const Seconds part : stage.parts) {
      EXPECT_GE(part.value, 0);
      sum += part.value;
    }
    EXPECT_NEAR(sum, out.step_time.value, 1e-9 * out.step_time.value);
  }
  EXPECT_GT(out.time[static_cast<std::size_t>(TimePart::compute)].value, 0.5 * out.step_time.value);
}

TEST(Replay, PeakIsThatOfTheProgramsOwnFold) {
  for (const Case& c : {dense(2, 2, 2, 16), dense(4, 2, 1, 16, "zb-h1"), dense(2, 2, 1, 8, "gpipe")}) {
    const CostModel cost = lowered::cost_of(c);
    const Simulation out = run(c, cost);
    for (std::size_t stage = 0; stage < out.stages.size(); ++stage) {
      Bytes peak;
      for (const MemoryPoint& point : memory_timeline_by_op(c.program, c.program.roles[stage]))
        peak = std::max(peak, point.peak);
      EXPECT_EQ(out.stages[stage].peak, peak) << "stage " << stage;
    }
  }
}

TEST(Replay, RecordingChangesNothingButAddsTimelineAndMemory) {
  const Case c = dense(2, 2, 2, 8);
  const CostModel cost = lowered::cost_of(c);
  const Simulation plain = run(c, cost);
  const Simulation recorded = run(c, cost, {true});
  EXPECT_NEAR(recorded.step_time.value, plain.step_time.value, 1e-9 * plain.step_time.value);
  EXPECT_TRUE(plain.events.empty());
  EXPECT_FALSE(recorded.events.empty());
  for (const StageRun& stage : recorded.stages) {
    Bytes highest;
    for (const MemorySample& sample : stage.memory) highest = std::max(highest, sample.peak);
    EXPECT_EQ(highest, stage.peak);
  }
}

TEST(Replay, TheSequenceOfStepsIsThatOfForEachOp) {
  const Case c = dense(2, 2, 2, 8);
  const CostModel cost = lowered::cost_of(c);
  const CostDurations durations(cost, c.program, c.semantics);
  const Script script = build_script(c.program, durations, {false});
  for (std::size_t r = 0; r < c.program.roles.size(); ++r) {
    const RoleScript& role = script.roles[r];
    for (std::size_t i = 0; i < role.instructions.size(); ++i) {
      if (role.source[i].kind != InstructionKind::slot) continue;
      std::vector<const Op*> expected;
      for_each_op(c.program, c.program.roles[r], role.source[i],
                  [&](const Op& op, int, int) { expected.push_back(&op); });
      std::vector<const Op*> actual;
      for (const ScriptStep& step : script.slots[static_cast<std::size_t>(role.instructions[i].slot)].steps)
        if (step.op != nullptr) actual.push_back(step.op);
      ASSERT_EQ(actual, expected) << "role " << r << ", instruction " << i;
    }
  }
}

// Sanity of every run (astra-sim/astra-sim#139: halving the devices left compute unchanged).
TEST(Replay, HalvingTheDevicesOfTheSameWorkDoublesComputePerDevice) {
  const Case eight = dense(1, 1, 8, 64);
  const Case four = dense(1, 1, 4, 64);
  const CostModel cost = lowered::cost_of(eight);
  EXPECT_NEAR(run(four, cost).stages[0].compute / run(eight, cost).stages[0].compute, 2, 0.05)
      << "the optimizer's share does not scale";
}

} // namespace
} // namespace foretrain
