#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/for_each_op.h"
#include "tests/executor/fixtures.h"

namespace foretrain {
namespace {

using namespace executor_fixtures;

constexpr int kSteps = 3;
/// The same sums in another order, in double: rounding only. Losses are means of 32 numbers near 4.
constexpr double kLoss = 1e-12;
/// Norm-wise per tensor, after as many AdamW steps; measured 1e-15 to 1e-13.
constexpr double kTensors = 1e-10;

/// The gradient of a key's bias is zero (without rotary positions it adds the same to all scores of a query), so AdamW
/// moves it by learning rate · rounding / epsilon = 1e-3 · 1e-17 / 1e-8 a step; absolute.
constexpr double kKeyBias = 1e-11;

struct Case {
  std::string name;
  ModelSpec model;
  Layout layout;
  std::function<void(Plan&)> change = {};
};
void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

template <class Change> Layout layout(Change&& change) {
  Layout l;
  l.sharding.kind = ShardingKind::none;
  change(l);
  return l;
}

std::vector<Case> cases() {
  const ModelSpec llama = llama_like();
  const ModelSpec tied = llama_like(true);
  const ModelSpec gpt = gpt_like();
  const Layout tp2 = layout([](Layout& l) { l.tp = 2; });
  const Layout sp2 = layout([](Layout& l) {
    l.tp = 2;
    l.sequence_parallel = true;
  });
  const Layout pp2 = layout([](Layout& l) { l.pp = 2; });
  const Layout dp2 = layout([](Layout& l) { l.dp_shard = 2; });
  const Layout zero1 = layout([](Layout& l) {
    l.dp_shard = 2;
    l.sharding.kind = ShardingKind::optimizer;
  });
  std::vector<Case> list = {
      {"tp2", llama, tp2},
      {"tp2_sp", llama, sp2},
      {"pp2", llama, pp2},
      {"dp2", llama, dp2},
      {"dp2_sharded", llama, zero1},
      {"tp2_tied", tied, tp2},
      {"tp2_sp_tied", tied, sp2},
      {"pp2_tied", tied, pp2},
      {"dp2_tied", tied, dp2},
      {"dp2_sharded_tied", tied, zero1},
      {"tp2_gpt", gpt, tp2},
      {"tp2_sp_gpt", gpt, sp2},
      {"pp2_gpt", gpt, pp2},
      {"dp2_gpt", gpt, dp2},
      {"dp2_sharded_gpt", gpt, zero1},
  };
  list.push_back({"dp2_replicated", llama, layout([](Layout& l) {
                    l.dp_replicate = 2;
                    l.sharding.kind = ShardingKind::optimizer;
                  })});
  list.push_back({"dp2_sharded_no_overlap", llama, zero1, [](Plan& plan) {
                    plan.layout.overlap.dp_gradients = false;
                    plan.layout.overlap.dp_parameters = false;
                  }});
  list.push_back({"dp2_sgd", llama, zero1, [](Plan& plan) { plan.job.optimizer.kind = OptimizerKind::sgd; }});
  list.push_back({"tp2_window", llama, tp2, [](Plan& plan) { plan.model.window = SlidingWindow{3, 2, {}}; }});
  list.push_back({"tp2_micro_batch_2", llama, sp2, [](Plan& plan) { plan.layout.micro_batch = 2; }});
  list.push_back({"pp2_gpipe", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule.kind = "gpipe";
                  })});
  list.push_back({"pp2_uneven", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.layers_per_stage = {3, 1};
                  })});
  list.push_back({"tp2_sp_dp2_sharded", tied, layout([](Layout& l) {
                    l.tp = l.dp_shard = 2;
                    l.sequence_parallel = true;
                    l.sharding.kind = ShardingKind::optimizer;
                  })});
  list.push_back({"pp2_dp2_sharded_tied", tied, layout([](Layout& l) {
                    l.pp = l.dp_shard = 2;
                    l.sharding.kind = ShardingKind::optimizer;
                  })});
  list.push_back({"tp2_sp_pp2_tied", tied, layout([](Layout& l) {
                    l.tp = l.pp = 2;
                    l.sequence_parallel = true;
                  })});
  list.push_back({"pp2_interleaved", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule = {"interleaved", 2};
                  })});
  list.push_back({"pp2_zero_bubble", tied, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule.kind = "zb-h1";
                  })});
  list.push_back({"recompute_full", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.recompute.kind = RecomputeKind::full;
                  })});
  list.push_back({"recompute_full_spans", gpt, layout([](Layout& l) {
                    l.tp = 2;
                    l.recompute.kind = RecomputeKind::full;
                    l.recompute.count = 2;
                  })});
  list.push_back({"recompute_selective", llama, layout([](Layout& l) {
                    l.tp = 2;
                    l.sequence_parallel = true;
                    l.recompute.kind = RecomputeKind::selective;
                    l.recompute.modules = {RecomputeModule::core_attention, RecomputeModule::layernorm,
                                           RecomputeModule::activation};
                  })});
  return list;
}

Plan plan_for(const Case& c) {
  Plan plan = plan_of(c.model, c.layout);
  if (c.change) c.change(plan);
  return plan;
}

/// The same model and job in one process, without pipeline, splits and recomputation.
Plan alone(Plan plan) {
  plan.layout = Layout{};
  plan.layout.sharding.kind = ShardingKind::none;
  plan.cluster.tiers.front().fanout = 1;
  return plan;
}

class LayoutTest : public testing::TestWithParam<Case> {};

TEST_P(LayoutTest, LossGradientsAndWeightsEqualOneProcess) {
  const Plan plan = plan_for(GetParam());
  const RunOutcome split = run_threads(plan, kSteps);
  const RunOutcome whole = run_threads(alone(plan), kSteps);
  for (std::size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(split.losses[step] / whole.losses[step], 1, kLoss) << "step " << step;
    EXPECT_NEAR(split.gradient_norms[step] / whole.gradient_norms[step], 1, kTensors) << "step " << step;
    ASSERT_EQ(split.gradients[step].size(), whole.gradients[step].size());
    for (const auto& [name, gradient] : whole.gradients[step]) {
      ASSERT_TRUE(split.gradients[step].count(name)) << name;
      EXPECT_LT(distance(split.gradients[step].at(name), gradient), kTensors)
          << "gradient of " << name << ", step " << step;
    }
  }
  for (const auto& [name, weight] : whole.weights) {
    at::Tensor expected = weight;
    at::Tensor got = split.weights.at(name);
    if (name.find("qkv.bias") != std::string::npos) {
      const std::int64_t queries = std::int64_t{plan.model.heads} * plan.model.head_dim;
      const std::int64_t keys = std::int64_t{plan.model.kv_heads} * plan.model.head_dim;
      EXPECT_LT((got - expected).narrow(0, queries, keys).abs().max().item<double>(), kKeyBias) << name;
      got.narrow(0, queries, keys).zero_();
      expected.narrow(0, queries, keys).zero_();
    }
    EXPECT_LT(distance(got, expected), kTensors) << "weight " << name;
  }
}

/// Bytes of every transfer in the order of the Program; 0 for what moves nothing.
std::vector<std::int64_t> bytes_of(const Program& program, const Role& role) {
  std::vector<std::int64_t> bytes;
  for (const Instruction& instruction : role.instructions) {
    switch (instruction.kind) {
    case InstructionKind::slot:
      for_each_op(program, role, instruction, [&](const Op& op, int, int) { bytes.push_back(op.bytes.value); });
      break;
    case InstructionKind::receive:
    case InstructionKind::send:
      bytes.push_back(role.boundary.value);
      break;
    case InstructionKind::wait_receive:
    case InstructionKind::wait_send:
    case InstructionKind::release_send:
      bytes.push_back(0);
      break;
    case InstructionKind::step:
      bytes.push_back(role.step[static_cast<std::size_t>(instruction.step)].bytes.value);
      break;
    }
  }
  return bytes;
}

TEST_P(LayoutTest, DoesWhatTheProgramSaysInItsOrderMovesItsBytesAndFreesEveryBuffer) {
  const Plan plan = plan_for(GetParam());
  const Program program = lowered(plan);
  const RunOutcome outcome = run_threads(plan, 2);
  for (const std::vector<StepRecord>& ranks : outcome.records)
    for (const StepRecord& record : ranks) {
      const Role& role = program.roles[static_cast<std::size_t>(program.mesh.coordinate(record.rank, Axis::pp))];
      const std::vector<OpPlace> places = places_of(program, role);
      const std::vector<std::int64_t> bytes = bytes_of(program, role);
      ASSERT_EQ(record.ops.size(), places.size());
      for (std::size_t i = 0; i < places.size(); ++i) {
        ASSERT_EQ(record.ops[i].place, places[i])
            << to_string(record.ops[i].place) << " instead of " << to_string(places[i]);
        EXPECT_EQ(record.ops[i].bytes, bytes[i]) << to_string(places[i]);
      }
      EXPECT_EQ(record.live_buffers, 0);
    }
}

INSTANTIATE_TEST_SUITE_P(All, LayoutTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& one) { return one.param.name; });

TEST(Rank, TwoRunsGiveTheSameBits) {
  const Plan plan = plan_of(llama_like(), layout([](Layout& l) {
                              l.tp = 2;
                              l.dp_shard = 2;
                              l.sharding.kind = ShardingKind::optimizer;
                            }));
  const RunOutcome first = run_threads(plan, kSteps);
  const RunOutcome second = run_threads(plan, kSteps);
  EXPECT_EQ(first.losses, second.losses);
  for (const auto& [name, weight] : first.weights) EXPECT_TRUE(at::equal(weight, second.weights.at(name))) << name;
}

TEST(Rank, LearnsTheStridesOfItsSequences) {
  Plan plan = plan_of(llama_like(), layout([](Layout&) {}));
  plan.job.global_batch = 8;
  OptimizerOptions optimizer;
  optimizer.learning_rate = 1e-2;
  const RunOutcome outcome = run_threads(plan, 40, optimizer);
  EXPECT_LT(outcome.losses.back(), 0.75 * outcome.losses.front());
}

} // namespace
} // namespace foretrain
