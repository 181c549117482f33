#include "planner/evaluate.h"

#include <cmath>

#include "core/program/chunks.h"
#include "core/program/schedules/all.h"
#include "core/program/stages.h"
#include "planner/explain.h"
#include "planner/layouts.h"
#include "planner/refine.h"
#include "planner/slot_bound.h"
#include "planner/stage_cache.h"
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
          setting_of("deepseek-v2-lite", "dgx-h100", 16, 4096, 64, "foretrain")};
}

// A search extrapolates long pipelines from short ones; the full prediction replays every micro-batch. A cycle that
// takes over later than the short ones show makes a few differ, by less than slots and ops may.
TEST(Evaluate, SearchAndFullPredictionAgree) {
  int long_pipelines = 0;
  int exact = 0;
  int all = 0;
  for (const Setting& s : settings()) {
    const Evaluator evaluator = evaluator_of(s);
    Evaluator::Worker worker = evaluator.worker();
    for (const Layout& layout : sample(s, 60)) {
      const double ratio = worker.evaluate(layout).step_seconds / evaluator.predict(layout).step_time.value;
      EXPECT_NEAR(ratio, 1, kSlotOpBound) << s.plan.job.semantics << ' ' << describe(layout);
      if (std::abs(ratio - 1) <= 1e-9) ++exact;
      ++all;
      if (micro_batches_of(s.plan.job, layout) > 12 * layout.pp) ++long_pipelines;
    }
  }
  EXPECT_GT(long_pipelines, 10); // where the two differ in method
  EXPECT_GE(exact, all * 99 / 100);
}

// Slots alone tell the utilisation: rows that nobody replayed have one too.
TEST(Evaluate, UtilisationIsThatOfThePrediction) {
  const Setting s = setting_of("llama3-8b", "dgx-h100", 16, 4096, 64, "megatron-core");
  const Evaluator evaluator = evaluator_of(s);
  Evaluator::Worker worker = evaluator.worker();
  constexpr double kEngines = 0.01; // the search folds micro-batches of one kind
  for (const Layout& layout : sample(s, 12)) {
    const Evaluation slots = worker.evaluate(layout);
    const Prediction whole = evaluator.predict(layout);
    EXPECT_GT(slots.mfu_percent, 0);
    EXPECT_NEAR(slots.mfu_percent / whole.mfu_percent, 1, kEngines);
    EXPECT_NEAR(slots.tflops_per_device / whole.model_tflops_per_device, 1, kEngines);
    EXPECT_NEAR(slots.mfu_percent * slots.step_seconds, whole.mfu_percent * whole.step_time.value,
                1e-9 * slots.mfu_percent * slots.step_seconds);
  }
}

// Backward of the embedding is empty where only adapters are trained; gathers of sharded weights run beside it.
TEST(Evaluate, AdaptersBesideShardedWeights) {
  Setting s = setting_of("llama3-8b", "dgx-h100", 8, 4096, 32, "torchtitan");
  s.plan.job.lora = LoraChoice{};
  Layout layout;
  layout.tp = 2;
  layout.dp_shard = 4;
  layout.micro_batch = 2;
  layout.sequence_parallel = true;
  layout.sharding.kind = ShardingKind::parameters;
  layout.context_parallel.kind = ContextKind::all_gather;
  layout.recompute.kind = RecomputeKind::full;
  const Evaluator evaluator = evaluator_of(s);
  Evaluator::Worker worker = evaluator.worker();
  EXPECT_NEAR(worker.evaluate(layout).step_seconds / evaluator.predict(layout).step_time.value, 1, kSlotOpBound);
}

// Slots, the tensors in flight between them and the step's end, folded without a Program, against the Program.
TEST(Evaluate, SearchedMemoryIsThatOfTheProgramToTheByte) {
  for (const Setting& s : settings()) {
    const Evaluator evaluator = evaluator_of(s);
    Evaluator::Worker worker = evaluator.worker();
    for (const Layout& layout : sample(s, 60)) {
      Plan plan = s.plan;
      plan.layout = layout;
      const Program program = lower(plan, s.semantics);
      std::int64_t exact = 0;
      for (const Role& role : program.roles) exact = std::max(exact, stage_memory(program, role).device.value);
      EXPECT_EQ(worker.evaluate(layout).device_bytes, exact) << s.plan.job.semantics << ' ' << describe(layout);
    }
  }
}

TEST(Evaluate, TheSameWorkerInAnyOrderGivesTheSame) {
  const Setting s = settings()[1];
  const Evaluator evaluator = evaluator_of(s);
  std::vector<Layout> layouts = sample(s, 40);
  Evaluator::Worker forth = evaluator.worker();
  std::vector<double> seconds;
  for (const Layout& layout : layouts) seconds.push_back(forth.evaluate(layout).step_seconds);
  Evaluator::Worker back = evaluator.worker();
  for (std::size_t i = layouts.size(); i-- > 0;)
    EXPECT_EQ(back.evaluate(layouts[i]).step_seconds, seconds[i]) << describe(layouts[i]);
}

// The cache builds stages from pieces by the same calls as lower(): state is equal to the byte.
TEST(Evaluate, CachedStateIsThatOfTheProgram) {
  for (const Setting& s : settings()) {
    CostNeeds needs;
    needs.precision = s.plan.job.precision;
    const StudyContext study = make_study_context(s.plan.model, s.plan.cluster, s.plan.job, s.semantics,
                                                  CostModel::make(s.plan.cluster, s.calibration, needs).value());
    StageCache cache(study);
    for (const Layout& layout : sample(s, 40)) {
      Plan plan = s.plan;
      plan.layout = layout;
      const Program program = lower(plan, s.semantics);
      const std::vector<int> layers = layers_per_chunk(s.plan.model, layout);
      const LayoutView view{&layout, &cache.mesh_of(layout), &layers, program.micro_batches, program.split_backward};
      cache.select(view);
      for (const Role& role : program.roles) {
        Bytes persistent;
        for (const Persistent& entry : role.persistent)
          if (entry.name != "input gradient of the micro-batch before") persistent += entry.bytes;
        const StageState& state = cache.state(role.stage);
        EXPECT_EQ(state.persistent, persistent) << s.plan.job.semantics << ' ' << describe(layout);
        EXPECT_EQ(state.outside, role.outside);
      }
    }
  }
}

// The weight pass of an embedding is empty: what follows it between blocks is no block.
TEST(Evaluate, PassesBlocksThatHaveNothingToDo) {
  const Setting s = setting_of("deepseek-v2-lite", "dgx-h100", 8, 4096, 16, "foretrain");
  Layout layout;
  layout.pp = 2;
  layout.cp = 4;
  layout.ep = 4;
  layout.schedule.kind = "zb-h1";
  layout.context_parallel.kind = ContextKind::all_gather;
  layout.expert_dispatch.kind = DispatchKind::all_gather;
  layout.sharding.kind = ShardingKind::parameters;
  ASSERT_TRUE(is_legal(s, layout));
  EXPECT_GT(evaluator_of(s).worker().evaluate(layout).step_seconds, 0);
}

// A bound that prunes must never prune what fits.
TEST(Evaluate, BoundsNeverExceedTheForecast) {
  for (const Setting& s : settings()) {
    const Evaluator evaluator = evaluator_of(s);
    Evaluator::Worker worker = evaluator.worker();
    for (const Layout& layout : sample(s, 40)) {
      const Evaluation evaluation = worker.evaluate(layout);
      EXPECT_LE(worker.least_state(layout).bytes, Bytes(evaluation.device_bytes)) << describe(layout);
      EXPECT_LE(worker.least_activations(layout).bytes, Bytes(evaluation.device_bytes)) << describe(layout);
      const Evaluation again = worker.evaluate(layout); // bounds in between change nothing
      EXPECT_EQ(again.step_seconds, evaluation.step_seconds);
      EXPECT_EQ(again.device_bytes, evaluation.device_bytes);
    }
  }
}

} // namespace
} // namespace foretrain
