#include "core/program/check.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "core/program/schedules/schedule.h"
#include "tests/core/program/fixtures.h"

namespace foretrain {
namespace {

/// A small dense model on a pipeline; eight layers give every chunk at least one.
Plan pipeline(const std::string& schedule, int stages, int chunks, int micro_batches, bool overlap) {
  Plan plan =
      fixtures::plan(fixtures::llama3(512, 4, 1024, std::max(8, stages * chunks), 4), stages, 256, micro_batches);
  plan.cluster = fixtures::node(stages);
  plan.layout.pp = stages;
  plan.layout.schedule = {schedule, chunks};
  plan.layout.sharding.kind = ShardingKind::none;
  plan.layout.overlap.p2p = overlap;
  return plan;
}

std::string text_of(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems)
    text += std::string(id_of(problem.kind)) + " stage " + std::to_string(problem.stage) + " at " +
            std::to_string(problem.instruction) + ": " + problem.text + "\n";
  return text;
}

/// Whether compute of both ends can wait for each transfer: the schedule says so itself.
bool can_block(const Schedule& schedule, const ScheduleShape& shape) {
  return !schedule.legal_blocking(shape).has_value();
}

TEST(ProgramCheck, PassesEveryLegalScheduleAndShape) {
  int checked = 0;
  for (const auto& schedule : schedules())
    for (const int stages : {1, 2, 3, 4, 8})
      for (const int chunks : {1, 2, 3})
        for (const int micro_batches : {1, 2, 3, 4, 6, 8, 16, 24})
          for (const bool overlap : {false, true}) {
            const ScheduleShape shape{stages, chunks, micro_batches};
            if (schedule->legal(shape)) continue;
            if (!overlap && !can_block(*schedule, shape)) continue;
            const Plan plan = pipeline(std::string(schedule->id()), stages, chunks, micro_batches, overlap);
            const auto problems = check(lower(plan, fixtures::megatron()));
            ASSERT_TRUE(problems.empty()) << schedule->id() << " stages " << stages << " chunks " << chunks
                                          << " micro-batches " << micro_batches << " overlap " << overlap << "\n"
                                          << text_of(problems);
            ++checked;
          }
  EXPECT_GT(checked, 150);
}

TEST(ProgramCheck, PassesGroupsOfAnotherSizeThanTheStages) {
  for (const auto& [stages, micro_batches, group] :
       {std::array{4, 10, 5}, std::array{4, 5, 5}, std::array{2, 5, 3}, std::array{3, 22, 8}, std::array{8, 17, 9}})
    for (const int chunks : {2, 3}) {
      Plan plan = pipeline("interleaved", stages, chunks, micro_batches, true);
      plan.layout.schedule.group = group;
      const Program program = lower(plan, fixtures::megatron());
      const auto problems = check(program);
      EXPECT_TRUE(problems.empty()) << stages << " stages, " << micro_batches << " in " << group << "\n"
                                    << text_of(problems);
      plan.layout.schedule.group = micro_batches; // another order
      EXPECT_NE(group == micro_batches, !(lower(plan, fixtures::megatron()) == program));
    }
}

// What comes round lies where it is taken until its group is through: posted only then, its sender would wait for it,
// and the other stage for that sender.
TEST(ProgramCheck, FindsTheSenderThatWaitsForALatePost) {
  Plan plan = pipeline("interleaved", 2, 2, 5, true);
  plan.layout.schedule.group = 3;
  Program program = lower(plan, fixtures::megatron());
  ASSERT_TRUE(check(program).empty());
  for (Role& role : program.roles) {
    const std::vector<Instruction> list = role.instructions;
    role.instructions.clear();
    for (const Instruction& instruction : list) {
      if (instruction.kind == InstructionKind::receive) continue;
      if (instruction.kind == InstructionKind::wait_receive)
        role.instructions.push_back(*std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
          return i.kind == InstructionKind::receive && i.pass == instruction.pass && i.chunk == instruction.chunk &&
                 i.micro_batch == instruction.micro_batch;
        }));
      role.instructions.push_back(instruction);
    }
    ASSERT_EQ(role.instructions.size(), list.size());
    int batch = 0; // each transfer is one of its own
    for (Instruction& instruction : role.instructions)
      if (instruction.batch >= 0) instruction.batch = batch++;
  }
  const auto problems = check(program);
  EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [](const Problem& problem) {
    return problem.kind == ProblemKind::deadlock;
  })) << text_of(problems);
}

TEST(ProgramCheck, PassesShardingRecomputationExpertsAndContext) {
  const auto passes = [](const Plan& plan, const char* what) {
    const auto problems = check(lower(plan, fixtures::megatron()));
    EXPECT_TRUE(problems.empty()) << what << "\n" << text_of(problems);
  };
  for (const ShardingKind sharding :
       {ShardingKind::none, ShardingKind::optimizer, ShardingKind::gradients, ShardingKind::parameters})
    for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::full, RecomputeKind::selective}) {
      Plan plan = pipeline("1f1b", 2, 1, 4, true);
      plan.cluster = fixtures::node(8, 2);
      plan.job.global_batch = 8;
      plan.layout.dp_shard = 2;
      plan.layout.tp = 4;
      plan.layout.sequence_parallel = true;
      plan.layout.sharding.kind = sharding;
      plan.layout.recompute.kind = recompute;
      if (recompute == RecomputeKind::selective) plan.layout.recompute.modules = {RecomputeModule::core_attention};
      passes(plan, "sharding and recomputation");
    }
  for (const ContextKind context : {ContextKind::all_gather, ContextKind::ring, ContextKind::ulysses}) {
    Plan plan = pipeline("1f1b", 2, 1, 4, true);
    plan.cluster = fixtures::node(8);
    plan.layout.cp = 4;
    plan.layout.context_parallel.kind = context;
    passes(plan, "context parallel");
  }
  for (const DispatchKind dispatch : {DispatchKind::all_gather, DispatchKind::all_to_all, DispatchKind::deduplicated}) {
    Plan plan = pipeline("interleaved", 2, 2, 4, true);
    plan.model = fixtures::deepseek_v2(8);
    plan.cluster = fixtures::node(8, 2);
    plan.job.global_batch = 32;
    plan.layout.dp_shard = 8;
    plan.layout.ep = 8;
    plan.layout.expert_dispatch.kind = dispatch;
    passes(plan, "experts");
  }
}

TEST(ProgramCheck, PassesTiedEmbeddingsAcrossStages) {
  Plan plan = pipeline("1f1b", 4, 1, 8, true);
  plan.model.tied_embeddings = true;
  const auto problems = check(lower(plan, fixtures::megatron()));
  EXPECT_TRUE(problems.empty()) << text_of(problems);
}

/// Programs that were broken by hand, and what must be found.
class BrokenProgram : public testing::Test {
protected:
  Program program_ = lower(tied(), fixtures::megatron());

  static Plan tied() {
    Plan plan = pipeline("1f1b", 4, 1, 8, false);
    plan.model.tied_embeddings = true;
    return plan;
  }
  std::vector<Instruction>& of(int stage) { return program_.roles[static_cast<std::size_t>(stage)].instructions; }
  std::size_t nth(int stage, InstructionKind kind, int skip) {
    std::vector<Instruction>& list = of(stage);
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].kind == kind && skip-- == 0) return i;
    ADD_FAILURE() << "no such instruction";
    return 0;
  }
  void remove(int stage, std::size_t at) { of(stage).erase(of(stage).begin() + static_cast<std::ptrdiff_t>(at)); }
  void expect(ProblemKind kind) {
    const auto problems = check(program_);
    EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [kind](const Problem& p) { return p.kind == kind; }))
        << "no " << id_of(kind) << " among\n"
        << text_of(problems);
  }
};

TEST_F(BrokenProgram, SwappedReceives) {
  const std::size_t first = nth(1, InstructionKind::receive, 0);
  const std::size_t second = nth(1, InstructionKind::receive, 1);
  ASSERT_EQ(of(1)[first].pass, of(1)[second].pass);
  std::swap(of(1)[first].micro_batch, of(1)[second].micro_batch);
  expect(ProblemKind::pairing);
}

TEST_F(BrokenProgram, MissingSend) {
  remove(2, nth(2, InstructionKind::send, 1));
  expect(ProblemKind::pairing);
  expect(ProblemKind::order);
}

TEST_F(BrokenProgram, MissingReceive) {
  remove(1, nth(1, InstructionKind::receive, 2));
  expect(ProblemKind::pairing);
}

TEST_F(BrokenProgram, MissingWait) {
  remove(1, nth(1, InstructionKind::wait_receive, 0));
  expect(ProblemKind::order);
}

TEST_F(BrokenProgram, BufferOfASendThatIsNeverFreed) {
  remove(1, nth(1, InstructionKind::wait_send, 0));
  expect(ProblemKind::memory);
  expect(ProblemKind::order);
}

TEST_F(BrokenProgram, SlotBeforeItsInput) {
  const std::size_t slot = nth(2, InstructionKind::slot, 0);
  std::rotate(of(2).begin(), of(2).begin() + static_cast<std::ptrdiff_t>(slot),
              of(2).begin() + static_cast<std::ptrdiff_t>(slot) + 1);
  expect(ProblemKind::order);
}

TEST_F(BrokenProgram, MicroBatchThatRunsTwice) {
  of(3)[nth(3, InstructionKind::slot, 2)] = of(3)[nth(3, InstructionKind::slot, 0)];
  expect(ProblemKind::structure);
}

TEST_F(BrokenProgram, BatchIssuedInTwoPlaces) {
  const std::size_t first = nth(1, InstructionKind::send, 0);
  const std::size_t second = nth(1, InstructionKind::send, 1);
  of(1)[second].batch = of(1)[first].batch;
  expect(ProblemKind::batch);
}

/// Both ends wait for their send before they post the receive that the other one's send needs.
TEST_F(BrokenProgram, SendsThatWaitForEachOther) {
  // In the steady state a stage sends an activation while its neighbour sends a gradient, as one batch each. Taken
  // apart, with the send waited for first on both sides, neither ends.
  for (const int stage : {1, 2}) {
    std::vector<Instruction>& list = of(stage);
    for (std::size_t i = 0; i + 2 < list.size(); ++i)
      if (list[i].kind == InstructionKind::send && list[i + 1].kind == InstructionKind::receive &&
          list[i + 2].kind == InstructionKind::wait_send)
        std::swap(list[i + 1], list[i + 2]);
  }
  int number = 0;
  for (const int stage : {1, 2})
    for (Instruction& instruction : of(stage))
      if (instruction.batch >= 0) instruction.batch = number++;
  expect(ProblemKind::deadlock);
}

TEST_F(BrokenProgram, BufferFreedTwice) {
  for (Op& op : program_.blocks[1].backward)
    if (!op.frees.empty()) {
      op.frees.push_back(op.frees.front());
      break;
    }
  expect(ProblemKind::memory);
}

TEST_F(BrokenProgram, BufferNeverFreed) {
  for (Op& op : program_.blocks[1].backward)
    if (!op.frees.empty()) {
      op.frees.clear();
      break;
    }
  expect(ProblemKind::memory);
}

TEST_F(BrokenProgram, CollectivesAcrossStagesInAnotherOrder) {
  std::vector<Op>& step = program_.roles[3].step;
  const auto embedding = std::find_if(step.begin(), step.end(), [](const Op& op) {
    return op.kind == OpKind::collective && op.group == Group::embedding;
  });
  const auto world = std::find_if(
      step.begin(), step.end(), [](const Op& op) { return op.kind == OpKind::collective && op.group == Group::world; });
  ASSERT_TRUE(embedding != step.end() && world != step.end());
  std::iter_swap(embedding, world);
  expect(ProblemKind::group);
}

TEST_F(BrokenProgram, IndicesThatPointNowhere) {
  program_.roles[0].chunks[0].blocks[0] = 99;
  program_.roles[1].instructions[0].chunk = -1;
  program_.roles[2].instructions.back().step = 1000;
  const auto problems = check(program_);
  ASSERT_GE(problems.size(), 3U);
  for (const Problem& problem : problems) EXPECT_EQ(problem.kind, ProblemKind::structure);
}

/// Every change of one instruction that leaves no equal Program is found: removed, or swapped with the one after.
TEST_F(BrokenProgram, AnyRemovedInstruction) {
  const Program whole = program_;
  for (int stage = 0; stage < whole.stages; ++stage)
    for (std::size_t i = 0; i < whole.roles[static_cast<std::size_t>(stage)].instructions.size(); ++i) {
      program_ = whole;
      remove(stage, i);
      EXPECT_FALSE(check(program_).empty()) << "stage " << stage << " without instruction " << i;
    }
}

} // namespace
} // namespace foretrain
