#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "planner/explain.h"
#include "planner/refine.h"
#include "planner/slot_bound.h"
#include "tests/planner/samples.h"

namespace foretrain {
namespace {

using namespace samples;

std::vector<Setting> settings() {
  return {setting_of("llama3-8b", "dgx-h100", 16, 8192, 128, "megatron-core"),
          setting_of("mixtral-8x7b", "dgx-h100", 16, 4096, 64, "megatron-core"),
          setting_of("llama3-8b", "dgx-h100", 16, 8192, 64, "torchtitan"),
          setting_of("llama3-8b", "dgx-h100", 16, 4096, 64, "deepspeed"),
          setting_of("llama3-8b", "dgx-h100", 8, 4096, 48, "megatron-zb"),
          setting_of("deepseek-v2-lite", "dgx-h100", 16, 4096, 64, "foretrain"),
          setting_of("llama3-70b", "dgx-h100", 64, 8192, 256, "megatron-core"),
          setting_of("llama3-8b", "dgx-h100", 16, 32768, 32, "megatron-core"),
          setting_of("gpt3-175b", "dgx-a100-80gb", 64, 2048, 192, "megatron-core"),
          setting_of("qwen3-30b-a3b", "dgx-b200", 32, 4096, 128, "megatron-core"),
          setting_of("llama3-70b", "dgx-h100", 64, 8192, 128, "torchtitan"),
          setting_of("llama2-13b", "dgx-a100-80gb", 32, 4096, 64, "foretrain"),
          setting_of("llama2-7b", "aws-p4d", 16, 4096, 64, "nanotron"),
          setting_of("deepseek-v2-lite", "gb200-nvl72", 72, 4096, 144, "torchtitan"),
          setting_of("gpt3-175b", "dgx-a100-80gb", 64, 2048, 128, "megatron-deepspeed"),
          setting_of("llama3-8b", "hgx-h200", 32, 8192, 64, "nemo")};
}

/// Plans of each study: a few, or as many as the environment says.
std::int64_t plans_of_each() {
  const char* asked = std::getenv("FORETRAIN_SLOTS_PLANS");
  return asked ? std::atoi(asked) : 24;
}

struct Family {
  int plans = 0;
  int inside = 0; ///< kSlotOpBound
  double worst = 0;
};

// Slots and ops of one plan within the bound of its family, nearly all with one chunk per stage within one percent; the
// memory that the search works with equal to the byte.
TEST(SlotsAndOps, AgreeWithinTheBoundOfTheirFamily) {
  std::map<SlotFamily, Family> families;
  int all = 0;
  int inside = 0;
  int beside = 0; // tensor-parallel collectives beside their products
  for (const Setting& s : settings()) {
    const Evaluator evaluator = evaluator_of(s);
    Evaluator::Worker worker = evaluator.worker();
    for (const Layout& layout : varied_sample(s, plans_of_each())) {
      Plan plan = s.plan;
      plan.layout = layout;
      const std::string name = s.plan.job.semantics + ' ' + s.plan.model.name + ' ' + describe(layout);
      const auto ops = predict_with(evaluator, plan, s.semantics, Engine::replay, "", "");
      ASSERT_TRUE(ops) << name;
      const Evaluation slots = worker.evaluate(layout);
      std::int64_t device = 0;
      for (const StageMemory& stage : ops->memory) device = std::max(device, stage.device.value);
      EXPECT_EQ(slots.device_bytes, device) << name;
      const double difference = std::abs(slots.step_seconds / ops->step_time.value - 1);
      const SlotFamily which = slot_family(layout, s.semantics);
      EXPECT_LE(difference, slot_op_bound(which)) << name;
      Family& family = families[which];
      ++family.plans;
      family.worst = std::max(family.worst, difference);
      ++all;
      beside += layout.overlap.tp ? 1 : 0;
      if (difference > kSlotOpBound) continue;
      ++family.inside;
      ++inside;
    }
  }
  const auto share = [&](SlotFamily which) {
    return static_cast<double>(families[which].inside) / std::max(1, families[which].plans);
  };
  EXPECT_GT(families[SlotFamily::plain].plans, all / 3);
  EXPECT_GE(share(SlotFamily::plain), 0.98);
  EXPECT_GE(share(SlotFamily::interleaved), 0.90);
  EXPECT_GE(inside, all * 93 / 100);
  EXPECT_GT(beside, all / 20);
  for (const auto& [which, family] : families)
    RecordProperty("family_" + std::to_string(static_cast<int>(which)), std::to_string(family.inside) + " of " +
                                                                            std::to_string(family.plans) + ", worst " +
                                                                            std::to_string(family.worst));
}

} // namespace
} // namespace foretrain
