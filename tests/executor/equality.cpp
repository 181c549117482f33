#include <gtest/gtest.h>

#include "core/program/for_each_op.h"
#include "tests/executor/fixtures.h"

namespace foretrain::executor_fixtures {
namespace {

/// The gradient of a key's bias is zero (without rotary positions it adds the same to all scores of a query), so AdamW
/// moves it by learning rate · rounding / epsilon = 1e-3 · 1e-17 / 1e-8 a step; absolute.
constexpr double kKeyBias = 1e-11;

Plan alone(Plan plan) {
  plan.layout = Layout{};
  plan.layout.sharding.kind = ShardingKind::none;
  plan.cluster.tiers.front().fanout = 1;
  return plan;
}

void expect_weights_equal(const Plan& plan, const RunOutcome& split, const RunOutcome& whole, const Bounds& bounds) {
  for (const auto& [name, weight] : whole.weights) {
    at::Tensor expected = weight.clone();
    at::Tensor got = split.weights.at(name).clone();
    if (name.find("qkv.bias") != std::string::npos) {
      const std::int64_t queries = std::int64_t{plan.model.heads} * plan.model.head_dim;
      const std::int64_t keys = std::int64_t{plan.model.kv_heads} * plan.model.head_dim;
      // Lion goes by the sign of that rounding.
      if (plan.job.optimizer.kind != OptimizerKind::lion) {
        EXPECT_LT((got - expected).narrow(0, queries, keys).abs().max().item<double>(), kKeyBias) << name;
      }
      got.narrow(0, queries, keys).zero_();
      expected.narrow(0, queries, keys).zero_();
    }
    EXPECT_LT(distance(got, expected), bounds.tensors) << "weight " << name;
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

} // namespace

void expect_equal_to_one_process(const Plan& plan, int steps, const Bounds& bounds, const Besides& besides) {
  const RunOutcome split = run_threads(plan, steps, {}, true, besides);
  const RunOutcome whole = run_threads(alone(plan), steps);
  for (std::size_t step = 0; step < static_cast<std::size_t>(steps); ++step) {
    EXPECT_NEAR(split.losses[step] / whole.losses[step], 1, bounds.loss) << "step " << step;
    EXPECT_NEAR(split.gradient_norms[step] / whole.gradient_norms[step], 1, bounds.tensors) << "step " << step;
    ASSERT_EQ(split.gradients[step].size(), whole.gradients[step].size());
    for (const auto& [name, gradient] : whole.gradients[step]) {
      ASSERT_TRUE(split.gradients[step].count(name)) << name;
      EXPECT_LT(distance(split.gradients[step].at(name), gradient), bounds.tensors)
          << "gradient of " << name << ", step " << step;
    }
  }
  expect_weights_equal(plan, split, whole, bounds);
}

void expect_ops_of_program(const Plan& plan) {
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

} // namespace foretrain::executor_fixtures
