#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "core/program/check.h"
#include "planner/explain.h"
#include "planner/layouts.h"
#include "planner/refine.h"
#include "planner/short_runs.h"
#include "planner/slot_bound.h"
#include "simulator/replay.h"
#include "tests/planner/samples.h"

/// Groups of the interleaved schedule (Megatron-LM --microbatch-group-size-per-virtual-pipeline-stage) of another size
/// than the stages.
namespace foretrain {
namespace {

using namespace samples;

/// Interleaved pipelines of 16 devices, in as many micro-batches as `batch` gives, in groups of `group`.
Layout grouped(int tp, int pp, int dp, int chunks, int group) {
  Layout layout;
  layout.tp = tp;
  layout.pp = pp;
  layout.dp_shard = dp;
  layout.sequence_parallel = tp > 1;
  layout.schedule = {"interleaved", chunks, group};
  return layout;
}

struct Sized {
  Setting setting;
  Layout layout;
};

std::vector<Sized> legal_ones() {
  std::vector<Sized> list;
  for (const std::string framework : {"megatron-core", "foretrain"})
    for (const int batch : {20, 40, 88, 240}) {
      const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, batch, framework);
      for (const auto& [tp, pp, dp] : {std::array{4, 4, 1}, std::array{2, 4, 2}, std::array{8, 2, 1}})
        for (const int chunks : {2, 4})
          for (const int group : {3, 5, 6, 10, 11, 20})
            if (const Layout layout = grouped(tp, pp, dp, chunks, group); is_legal(s, layout))
              list.push_back({s, layout});
    }
  return list;
}

std::string name_of(const Sized& one) {
  return one.setting.plan.job.semantics + " batch " + std::to_string(one.setting.plan.job.global_batch) + ' ' +
         describe(one.layout);
}

// As of every layout: the search's slots are within the bound of the family of the replay op by op, its memory is that
// of the Program to the byte, and its floors lie below.
TEST(Groups, SlotsOpsAndFloorsAgree) {
  const std::vector<Sized> list = legal_ones();
  ASSERT_GT(list.size(), 60U);
  std::set<int> rests;
  for (const Sized& one : list) {
    const Evaluator evaluator = evaluator_of(one.setting);
    Evaluator::Worker worker = evaluator.worker();
    Plan plan = one.setting.plan;
    plan.layout = one.layout;
    const ScheduleShape shape = schedule_shape(plan.job, plan.layout);
    EXPECT_EQ(shape.group, one.layout.schedule.group);
    rests.insert(shape.micro_batches % shape.group == 0 ? 0 : 1);
    const auto ops = predict_with(evaluator, plan, one.setting.semantics, Engine::replay, "", "");
    ASSERT_TRUE(ops) << name_of(one);
    const Evaluation slots = worker.evaluate(one.layout);
    std::int64_t device = 0;
    for (const StageMemory& stage : ops->memory) device = std::max(device, stage.device.value);
    EXPECT_EQ(slots.device_bytes, device) << name_of(one);
    EXPECT_LE(std::abs(slots.step_seconds / ops->step_time.value - 1),
              slot_op_bound(slot_family(one.layout, one.setting.semantics)))
        << name_of(one);
    Floor floor;
    worker.floors(one.layout, {&one.layout.recompute, 1}, {&floor, 1});
    EXPECT_LE(floor.step_seconds, slots.step_seconds) << name_of(one);
    EXPECT_LE(floor.device_bytes, slots.device_bytes) << name_of(one);
  }
  EXPECT_EQ(rests.size(), 2U) << "whole groups, and a smaller last one";
}

// A long step is replayed as two short ones that differ by a round, which is a group long.
TEST(Groups, LongStepsGoOnByGroups) {
  const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, 116, "megatron-core");
  Plan plan = s.plan;
  plan.layout = grouped(4, 4, 1, 2, 10);
  const ShortRuns runs = short_runs(plan);
  EXPECT_EQ(runs.few, 26);
  EXPECT_EQ(runs.more, 36);
  EXPECT_EQ(runs.rounds, 8);
  const Evaluator evaluator = evaluator_of(s);
  const auto continued = replay_step(evaluator, plan, s.semantics, lower(plan, s.semantics));
  const auto whole = replay(lower(plan, s.semantics), evaluator.cost(), s.semantics);
  ASSERT_TRUE(continued && whole);
  constexpr double kContinued = 1e-3; // ports are settled after two groups, not to the last digit
  EXPECT_NEAR(continued->step_time.value / whole->step_time.value, 1, kContinued);
}

// Larger groups hold more micro-batches in flight: stage 0 has min(m v, 2 (p - 1) + (v - 1) N + 1) chunks
// (docs/formulas.md, Schedules); 6 and 10 of them more for groups of 10 and of 14 instead of 4 with two chunks.
TEST(Groups, HoldMoreInFlight) {
  const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, 140, "megatron-core");
  Evaluator::Worker worker = evaluator_of(s).worker();
  const auto bytes = [&](int group) { return worker.evaluate(grouped(4, 4, 1, 2, group)).device_bytes; };
  const std::int64_t least = bytes(0);
  EXPECT_EQ(bytes(4), least) << "as many as stages, whether said or not";
  EXPECT_GT(bytes(10), least);
  EXPECT_NEAR(static_cast<double>(bytes(14) - least) / static_cast<double>(bytes(10) - least), 10.0 / 6, 1e-2);
}

TEST(Groups, AreSaidWhereverALayoutIs) {
  const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, 40, "megatron-core");
  const Layout plain = grouped(4, 4, 1, 2, 0);
  const Layout other = grouped(4, 4, 1, 2, 5);
  EXPECT_NE(describe(plain), describe(other));
  EXPECT_NE(describe(other).find("interleaved×2 group 5"), std::string::npos);
  Plan a = s.plan;
  Plan b = s.plan;
  a.layout = other;
  b.layout = plain;
  const Evaluator evaluator = evaluator_of(s);
  const auto mine = predict_with(evaluator, a, s.semantics, Engine::slots, "", "");
  const auto theirs = predict_with(evaluator, b, s.semantics, Engine::slots, "", "");
  ASSERT_TRUE(mine && theirs);
  EXPECT_EQ(explain(a, *mine, b, *theirs).layout_changes,
            std::vector<std::string>{"schedule: interleaved×2 group 5 instead of interleaved×2"});
}

TEST(Groups, StandInASpaceThatAsksForThem) {
  const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, 40, "megatron-core");
  Study study{s.plan.model, s.plan.cluster, s.plan.job, {}, Objective::step_time, ""};
  const auto groups = [&](std::vector<int> asked) {
    study.space.groups = std::move(asked);
    const LayoutSpace space(study, s.semantics);
    std::multiset<int> found;
    std::int64_t visited = 0;
    for (std::size_t group = 0; group < space.groups(); ++group) {
      std::int64_t index = 0;
      space.visit_group(group, [&](const Layout& layout) {
        if (layout.schedule.kind == "interleaved") found.insert(layout.schedule.group);
        if (++visited % 97 == 0) {
          EXPECT_EQ(space.at(std::vector{LayoutPosition{group, index}}).front(), layout);
        }
        ++index;
        return true;
      });
    }
    EXPECT_EQ(visited, space.size());
    return found;
  };
  const auto plain = groups({0});
  EXPECT_EQ(plain.count(0), plain.size());
  EXPECT_EQ(groups({}), plain);
  const auto both = groups({0, 5});
  EXPECT_EQ(both.count(0), plain.size());
  EXPECT_EQ(both.count(5), plain.size());
  const auto named = groups({4, 0, 8}); // of 4 and 8 stages once, however they are called
  EXPECT_EQ(named.count(0), plain.size());
  EXPECT_LT(named.count(4), plain.size());
  EXPECT_GT(named.count(4), 0U);
}

// torch.distributed.pipelining and Megatron-LM before it had the option derive the size themselves.
TEST(Groups, AreRefusedWhereAFrameworkHasNoChoice) {
  for (const std::string framework : {"torchtitan", "megatron-zb"}) {
    const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, 40, framework);
    const auto rule = [&](int group) {
      Layout layout = grouped(4, 4, 1, 2, group);
      layout.sharding.kind = s.semantics.sharding.back();
      const auto rejection = first_rejection(
          {s.plan.model, s.plan.cluster, s.plan.job, s.semantics, layout, device_count(s.plan.cluster)});
      return rejection ? rejection->rule + ", " + rejection->nearest.front() : std::string();
    };
    EXPECT_EQ(rule(5), "schedule-group, group 4") << framework;
    EXPECT_EQ(rule(4), "") << framework;
    EXPECT_EQ(rule(0), "") << framework;
  }
}

// Megatron-LM core/pipeline_parallel/schedules.py: p <= N <= m, and the last group whole or at least p.
TEST(Groups, RejectionsSayWhichSizeWouldDo) {
  const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, 10, "megatron-core");
  const auto rejection = [&](int group, bool overlapped) {
    Layout layout = grouped(4, 4, 1, 2, group);
    layout.overlap.p2p = overlapped;
    return first_rejection(
        {s.plan.model, s.plan.cluster, s.plan.job, s.semantics, layout, device_count(s.plan.cluster)});
  };
  EXPECT_FALSE(rejection(5, true)); // 10 micro-batches on 4 stages in 2 groups of 5
  EXPECT_FALSE(rejection(10, true));
  const auto default_size = rejection(0, true);
  ASSERT_TRUE(default_size) << "2 groups of 4 leave 2";
  EXPECT_EQ(default_size->rule, "schedule-micro-batches");
  EXPECT_EQ(default_size->nearest.back(), "group 5");
  ASSERT_TRUE(rejection(0, false));
  EXPECT_NE(rejection(0, false)->nearest.back(), "group 5") << "waiting ends need groups of as many as stages";
  EXPECT_EQ(rejection(8, true)->nearest.back(), "group 5") << "8 leave 2";
  EXPECT_EQ(rejection(3, true)->available, 3);
  EXPECT_EQ(rejection(11, true)->available, 11);
  const auto blocking = rejection(5, false);
  ASSERT_TRUE(blocking);
  EXPECT_NE(blocking->reason.find("must equal the stages (4)"), std::string::npos);
}

} // namespace
} // namespace foretrain
