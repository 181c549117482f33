#include <limits>

#include "simulator/replay.h"
#include "tests/cases/cases.h"

/// Reports of simulators that crashed, hung or gave results that cannot be: here each input ends with a clear error or
/// a result that passes sanity checks.
namespace foretrain {
namespace {

using namespace cases;

ModelSpec llama_13b() {
  return data().model("llama2-13b").value();
}

Plan tensor_parallel(int devices, int tp, int sequence = 2048) {
  Plan plan = plan_of(llama_13b(), "dgx-h100", devices, sequence, 64);
  plan.layout.tp = tp;
  plan.layout.sequence_parallel = tp > 1;
  plan.layout.dp_shard = devices / tp;
  return plan;
}

double step_of(const Plan& plan, Engine engine = Engine::slots) {
  const auto prediction = predicted(plan, engine);
  EXPECT_TRUE(prediction) << to_string(prediction.error());
  if (!prediction) return 0;
  EXPECT_NE(prediction->verdict, Verdict::illegal);
  return prediction->step_time.value;
}

Simulation replay_of(const Plan& plan) {
  const Semantics semantics = semantics_of(plan);
  const Calibration calibration = load_calibration(data().root, plan.cluster.device).value();
  CostNeeds needs;
  needs.precision = plan.job.precision;
  const CostModel cost = CostModel::make(plan.cluster, calibration, needs).value();
  return replay(lower(plan, semantics), cost, semantics).value();
}

// aliyun/SimAI#182, #34: a network of 128 devices with a workload of 512, or 8: a segmentation fault, or silence.
TEST(SimulationCases, AWorkloadOfAnotherSizeThanTheClusterIsRefused) {
  Plan plan = tensor_parallel(128, 8);
  for (const int dp : {64, 1}) {
    plan.layout.dp_shard = dp;
    const auto prediction = predicted(plan);
    ASSERT_TRUE(prediction);
    EXPECT_EQ(prediction->verdict, Verdict::illegal);
    EXPECT_EQ(prediction->rejections.front().rule, "world-size");
    EXPECT_NE(prediction->rejections.front().reason.find("128"), std::string::npos);
  }
}

// aliyun/SimAI PR#25: tp beyond 16; #142: tp 24; #298: tp 1 with experts spread; #140: 13 B on 16 devices with tp 2
// hung after its first all-gather.
TEST(SimulationCases, UnusualDegreesRun) {
  Plan wide = tensor_parallel(32, 32);
  wide.model.heads = wide.model.kv_heads = 32;
  wide.model.head_dim = 160;
  wide.model.ffn = 16384;
  wide.model.vocab = 32000;
  EXPECT_GT(step_of(wide), 0);
  EXPECT_GT(step_of(wide, Engine::replay), 0);

  Plan odd = tensor_parallel(24, 24);
  odd.model.heads = odd.model.kv_heads = 48;
  odd.model.hidden = 6144;
  odd.model.ffn = 18432;
  odd.job.sequence_length = 3072; // splits over 24
  EXPECT_GT(step_of(odd), 0);
  EXPECT_GT(step_of(odd, Engine::replay), 0);

  Plan experts = plan_of("mixtral-8x7b", "dgx-h100", 16, 4096, 32);
  experts.layout.ep = 8;
  experts.layout.dp_shard = 16;
  EXPECT_GT(step_of(experts, Engine::replay), 0);

  EXPECT_GT(step_of(tensor_parallel(16, 2), Engine::replay), 0);
}

// aliyun/SimAI#174: one link of 10 ms. It costs at least itself wherever a transfer crosses it.
TEST(SimulationCases, AVerySlowLinkCostsItsLatency) {
  Plan plan = tensor_parallel(16, 8);
  plan.layout.dp_shard = 1;
  plan.layout.pp = 2;
  plan.job.global_batch = 8;
  const double before = step_of(plan, Engine::replay);
  plan.cluster.tiers[1].link.latency = Seconds(10e-3);
  const double after = step_of(plan, Engine::replay);
  EXPECT_GT(after, before + 2 * 10e-3); // an activation there, a gradient back
  EXPECT_LT(after, before + 1);
}

// aliyun/SimAI#300: a compute entry of 2^31 ns or more crawled. Times are seconds in double precision.
TEST(SimulationCases, LongKernelsAreOneStep) {
  Plan plan = tensor_parallel(8, 8, 1'048'576);
  plan.job.global_batch = 1;
  plan.model.layers = 1;
  const Simulation run = replay_of(plan);
  EXPECT_GT(run.stages[0].compute, 2.147483648); // one layer at a million tokens: kernels of seconds
  EXPECT_LT(run.steps, 10'000);
}

// aliyun/SimAI#202: 1,472 devices, tp 8, pp 8 and a batch of 32 give 23 replicas, which do not divide it; the tool
// answered.
TEST(SimulationCases, ABatchThatDoesNotDivideIsRefused) {
  Plan plan = plan_of(llama_13b(), "dgx-h100", 1472, 2048, 32);
  plan.layout.tp = 8;
  plan.layout.pp = 8;
  plan.layout.dp_shard = 23;
  plan.layout.sequence_parallel = true;
  const auto prediction = predicted(plan);
  ASSERT_TRUE(prediction) << to_string(prediction.error());
  ASSERT_EQ(prediction->verdict, Verdict::illegal);
  EXPECT_EQ(prediction->rejections.front().rule, "global-batch");
  EXPECT_EQ(prediction->rejections.front().nearest.back(), "global_batch 46");
}

// aliyun/SimAI#136: 256 and 512 MB took equally long.
TEST(SimulationCases, MoreBytesTakeLonger) {
  const Plan plan = tensor_parallel(64, 8);
  const Calibration calibration = load_calibration(data().root, plan.cluster.device).value();
  const CostModel cost = CostModel::make(plan.cluster, calibration, CostNeeds{}).value();
  const Mesh mesh(plan.layout, fanouts_of(plan.cluster));
  for (const Group group : {Group::tp, Group::data}) {
    double before = 0;
    for (double bytes = 1e6; bytes < 5e9; bytes *= 2) {
      const double now = cost.collective(Collective::all_reduce, mesh.shape(group), DType::bf16,
                                         Bytes(static_cast<std::int64_t>(bytes)))
                             .seconds;
      EXPECT_GT(now, before) << bytes;
      before = now;
    }
  }
}

// aliyun/SimAI#208: 32 and 64 devices gave equal times; astra-sim#139: half the devices left compute unchanged.
TEST(SimulationCases, DevicesChangeTheWorkOfEach) {
  Plan few = tensor_parallel(32, 8);
  Plan many = tensor_parallel(64, 8);
  EXPECT_LT(step_of(many), step_of(few));
  const double few_compute = replay_of(few).stages[0].compute;
  const double many_compute = replay_of(many).stages[0].compute;
  EXPECT_NEAR(few_compute / many_compute, 2, 0.1); // twice the sequences each, the same optimizer step
}

// aliyun/SimAI#292: with and without a profile the lists of collectives differed. Recording changes nothing.
TEST(SimulationCases, RecordingChangesNothing) {
  const Plan plan = tensor_parallel(16, 4);
  const Semantics semantics = semantics_of(plan);
  const Calibration calibration = load_calibration(data().root, plan.cluster.device).value();
  const CostModel cost = CostModel::make(plan.cluster, calibration, CostNeeds{}).value();
  const Program program = lower(plan, semantics);
  const Simulation plain = replay(program, cost, semantics).value();
  const Simulation recorded = replay(program, cost, semantics, {true}).value();
  EXPECT_NEAR(plain.step_time.value / recorded.step_time.value, 1, 1e-12); // sums in another order
  EXPECT_EQ(plain.transfers, recorded.transfers);
}

// astra-sim#222, #215, #318, stage#18: runs of days, of zero cycles, of one rank seen, of a hang. What every run must
// pass.
TEST(SimulationCases, EveryRunFinishesAllStagesAndKeepsItsWork) {
  for (const int pp : {1, 2, 4}) {
    double whole = 0;
    for (const int dp : {1, 2, 8}) {
      Plan plan = plan_of("llama3-8b", "dgx-h100", std::max(8, pp * dp * 2), 4096, 32);
      if (pp * dp * 2 < 8) plan.cluster.tiers.front().fanout = pp * dp * 2;
      plan.layout.tp = 2;
      plan.layout.sequence_parallel = true;
      plan.layout.pp = pp;
      plan.layout.dp_shard = dp;
      ASSERT_TRUE(is_legal(plan)) << rules_against(plan).front();
      const Simulation run = replay_of(plan);
      ASSERT_EQ(run.stages.size(), static_cast<std::size_t>(pp));
      double total = 0;
      EXPECT_GT(run.step_time.value, 0);
      EXPECT_LT(run.step_time.value, 1e4);
      for (const Seconds& part : run.time) {
        EXPECT_GE(part.value, -1e-12);
        total += part.value;
      }
      EXPECT_NEAR(total / run.step_time.value, 1, 1e-9);
      for (const StageRun& stage : run.stages) {
        EXPECT_GT(stage.finish, 0);
        EXPECT_LE(stage.compute, run.step_time.value * (1 + 1e-9));
      }
      double work = 0;
      for (const StageRun& stage : run.stages) work += stage.compute * dp;
      if (whole == 0) whole = work;
      EXPECT_NEAR(work / whole, 1, 0.1) << "pp " << pp << " dp "
                                        << dp; // replicas share the batch; each has an optimizer
    }
  }
}

} // namespace
} // namespace foretrain
