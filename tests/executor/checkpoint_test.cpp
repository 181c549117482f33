#include <string>
#include <vector>

#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "executor/checkpoint/hugging_face.h"
#include "tests/executor/fixtures.h"
#include "tests/executor/folder.h"

/// Runs that save and runs that go on, with ranks as threads.
namespace foretrain {
namespace {

using namespace executor_fixtures;
using namespace test;

constexpr int kSaved = 2;          ///< steps before the checkpoint
constexpr int kAll = 4;            ///< steps of the whole training
constexpr double kLoss = 1e-12;    ///< relative; the same sums in another order, in double
constexpr double kTensors = 1e-10; ///< norm-wise, per tensor

struct Case {
  std::string name;
  ModelSpec model;
  Layout layout;
};

template <class Change> Layout layout(Change&& change) {
  Layout l;
  l.sharding.kind = ShardingKind::none;
  change(l);
  return l;
}

Layout alone() {
  return layout([](Layout&) {});
}
Layout tp2_sp() {
  return layout([](Layout& l) {
    l.tp = 2;
    l.sequence_parallel = true;
  });
}
Layout tp2_pp2() {
  return layout([](Layout& l) {
    l.tp = l.pp = 2;
    l.sequence_parallel = true;
  });
}
Layout sharded(ShardingKind kind, int shard, int replicate = 1) {
  return layout([=](Layout& l) {
    l.dp_shard = shard;
    l.dp_replicate = replicate;
    l.sharding.kind = kind;
  });
}
Layout experts(int ep, int tp, ShardingKind kind) {
  return layout([=](Layout& l) {
    l.dp_shard = 2;
    l.ep = ep;
    l.tp = tp;
    l.etp = tp;
    l.sequence_parallel = tp > 1;
    l.sharding.kind = kind;
  });
}

Layout on_host(Layout l) {
  l.offload.optimizer = true;
  return l;
}

/// Saves after two of four steps.
RunOutcome saving_run(const Plan& plan, const std::filesystem::path& folder, bool background = false) {
  Besides besides;
  besides.checkpoint = {folder, kSaved, background};
  return run_threads(plan, kAll, {}, true, besides);
}

RunOutcome resumed_run(const Plan& plan, const std::filesystem::path& folder) {
  Besides besides;
  besides.resume = folder / checkpoint_name(kSaved);
  return run_threads(plan, kAll, {}, true, besides);
}

void expect_same_bits(const RunOutcome& got, const RunOutcome& expected) {
  for (std::size_t step = kSaved; step < static_cast<std::size_t>(kAll); ++step) {
    EXPECT_EQ(got.losses[step], expected.losses[step]) << "step " << step;
    EXPECT_EQ(got.gradient_norms[step], expected.gradient_norms[step]) << "step " << step;
  }
  ASSERT_EQ(got.weights.size(), expected.weights.size());
  for (const auto& [name, weight] : expected.weights) EXPECT_TRUE(got.weights.at(name).equal(weight)) << name;
}

void expect_within_rounding(const RunOutcome& got, const RunOutcome& expected) {
  for (std::size_t step = kSaved; step < static_cast<std::size_t>(kAll); ++step) {
    EXPECT_NEAR(got.losses[step] / expected.losses[step], 1, kLoss) << "step " << step;
    for (const auto& [name, gradient] : expected.gradients[step])
      EXPECT_LT(distance(got.gradients[step].at(name), gradient), kTensors) << "gradient of " << name;
  }
  ASSERT_EQ(got.weights.size(), expected.weights.size());
  for (const auto& [name, weight] : expected.weights)
    EXPECT_LT(distance(got.weights.at(name), weight), kTensors) << name;
}

TEST(Resume, UnderTheSameLayoutGivesTheSameBits) {
  const std::vector<Case> cases = {
      {"alone", llama_like(), alone()},
      {"tp2_sp", llama_like(), tp2_sp()},
      {"tp2_pp2_tied", llama_like(true), tp2_pp2()},
      {"zero1", gpt_like(), sharded(ShardingKind::optimizer, 2)},
      {"zero2", llama_like(), sharded(ShardingKind::gradients, 2)},
      {"zero3_hsdp", llama_like(true), sharded(ShardingKind::parameters, 2, 2)},
      {"ep2", mixtral_like(), experts(2, 1, ShardingKind::optimizer)},
      {"latent", deepseek_like(), tp2_sp()},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TestFolder folder;
    const Plan plan = plan_of(c.model, c.layout);
    const RunOutcome whole = saving_run(plan, folder.path());
    expect_same_bits(resumed_run(plan, folder.path()), whole);
    expect_same_bits(run_threads(plan, kAll), whole); // saving changes nothing
  }
}

TEST(Resume, GivesTheSameBitsInEveryPrecisionAndWithEveryOptimizer) {
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::sgd}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(precision)) + " " + std::to_string(static_cast<int>(kind)));
      const TestFolder folder;
      Plan plan = plan_of(llama_like(true), sharded(ShardingKind::optimizer, 2));
      plan.job.precision = precision;
      plan.job.optimizer.kind = kind;
      const RunOutcome whole = saving_run(plan, folder.path());
      expect_same_bits(resumed_run(plan, folder.path()), whole);
      plan.layout = on_host(plan.layout); // where the state is changes nothing
      expect_same_bits(resumed_run(plan, folder.path()), whole);
      const TestFolder other;
      expect_same_bits(saving_run(plan, other.path()), whole);
      plan.layout.offload.optimizer = false;
      expect_same_bits(resumed_run(plan, other.path()), whole);
    }
}

struct Change {
  std::string name;
  ModelSpec model;
  Layout from;
  Layout to;
};

TEST(Resume, UnderAnotherLayoutStaysWithinRounding) {
  const Layout cp2 = layout([](Layout& l) { l.cp = 2; });
  const Layout interleaved = layout([](Layout& l) {
    l.pp = 2;
    l.schedule = {"interleaved", 2};
  });
  const Layout tp2_dp2 = layout([](Layout& l) {
    l.tp = l.dp_shard = 2;
    l.sequence_parallel = true;
    l.sharding.kind = ShardingKind::parameters;
  });
  const std::vector<Change> changes = {
      {"tp2_pp2_to_dp4", llama_like(), tp2_pp2(), sharded(ShardingKind::none, 4)},
      {"dp4_zero3_to_tp2_pp2", llama_like(true), sharded(ShardingKind::parameters, 4), tp2_pp2()},
      {"tp2_zero3_to_alone", gpt_like(), tp2_dp2, alone()},
      {"alone_to_tp2_zero3", gpt_like(), alone(), tp2_dp2},
      {"cp2_to_interleaved", llama_like(true), cp2, interleaved},
      {"interleaved_to_hsdp", llama_like(), interleaved, sharded(ShardingKind::gradients, 2, 2)},
      {"ep2_to_alone", mixtral_like(), experts(2, 1, ShardingKind::optimizer), alone()},
      {"alone_to_ep2_tp2", mixtral_like(), alone(), experts(2, 2, ShardingKind::parameters)},
      {"ep2_tp2_to_pp2", mixtral_like(), experts(2, 2, ShardingKind::gradients), interleaved},
      {"latent_tp2_to_zero1", deepseek_like(), tp2_sp(), sharded(ShardingKind::optimizer, 2)},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    const TestFolder folder;
    const RunOutcome whole = saving_run(plan_of(change.model, change.from), folder.path());
    expect_within_rounding(resumed_run(plan_of(change.model, change.to), folder.path()), whole);
  }
}

TEST(Resume, CheckpointsOfTheBackgroundAreThoseOfTheForeground) {
  const TestFolder front;
  const TestFolder back;
  const Plan plan = plan_of(llama_like(), tp2_pp2());
  const RunOutcome whole = saving_run(plan, front.path());
  expect_same_bits(saving_run(plan, back.path(), true), whole);
  for (const int steps : {kSaved, kAll})
    for (int rank = 0; rank < 4; ++rank) {
      const std::string written = bytes_of_file(front / checkpoint_name(steps) / shard_name(rank));
      EXPECT_FALSE(written.empty());
      EXPECT_EQ(bytes_of_file(back / checkpoint_name(steps) / shard_name(rank)), written) << steps << " " << rank;
    }
  expect_same_bits(resumed_run(plan, back.path()), whole);
}

TEST(Resume, EveryRankSaysThatACheckpointCouldNotBeWrittenAndTheEarlierOnesStay) {
  for (const bool background : {false, true}) {
    const TestFolder folder;
    const Plan plan = plan_of(llama_like(), sharded(ShardingKind::none, 2)); // only the first replica writes much
    (void)saving_run(plan, folder.path());
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{20'000, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    Besides besides;
    besides.resume = folder / checkpoint_name(kAll);
    besides.checkpoint = {folder.path(), 1, background};
    besides.may_fail = true;
    const RunOutcome full = run_threads(plan, kAll + 4, {}, true, besides);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_EQ(full.errors.size(), 2U);
    for (const std::string& error : full.errors)
      EXPECT_NE(error.find("checkpoint after step 5"), std::string::npos) << error;
    EXPECT_NE((full.errors[0] + full.errors[1]).find("File too large"), std::string::npos) << full.errors[0];
    EXPECT_NE((full.errors[0] + full.errors[1]).find("another rank could not write"), std::string::npos);
    EXPECT_EQ(*newest_checkpoint(folder.path()), folder / checkpoint_name(kAll));
    EXPECT_FALSE(std::filesystem::exists(unfinished_checkpoint(folder.path(), kAll + 1))) << "the disk is freed";
  }
}

TEST(Resume, SaysOfADamagedCheckpointWhichFileItIs) {
  const TestFolder folder;
  const Plan plan = plan_of(llama_like(), tp2_sp());
  (void)saving_run(plan, folder.path());
  const std::filesystem::path shard = folder / checkpoint_name(kSaved) / shard_name(1);
  std::string bytes = bytes_of_file(shard);
  bytes[bytes.size() - 9] ^= 4;
  write_file(shard, bytes);
  Besides besides;
  besides.resume = folder / checkpoint_name(kSaved);
  besides.may_fail = true;
  const RunOutcome outcome = run_threads(plan, kAll, {}, true, besides);
  ASSERT_FALSE(outcome.errors.empty());
  EXPECT_NE(outcome.errors[0].find(shard.string() + ": is damaged"), std::string::npos) << outcome.errors[0];
}

/// Weights that left as Hugging Face's come back as they were, under any layout and in several files.
TEST(HuggingFaceWeights, ComeBackAsTheyLeft) {
  ModelSpec mixtral = mixtral_like();
  mixtral.moe->shared_ffn = 0;
  mixtral.moe->every = 1;
  ModelSpec qwen = llama_like(true);
  qwen.qkv_bias = true;
  const std::vector<Change> changes = {
      {"llama", llama_like(), tp2_pp2(), sharded(ShardingKind::parameters, 2)},
      {"qwen_tied", qwen, sharded(ShardingKind::optimizer, 2), tp2_sp()},
      {"qwen3", qwen3_like(), tp2_sp(), sharded(ShardingKind::gradients, 2)},
      {"olmoe", olmoe_like(), tp2_sp(), experts(2, 1, ShardingKind::none)},
      {"mixtral", mixtral, experts(2, 1, ShardingKind::none), experts(2, 2, ShardingKind::optimizer)},
  };
  for (const Change& change : changes)
    for (const Precision precision : {Precision::fp64, Precision::bf16}) {
      SCOPED_TRACE(change.name);
      const TestFolder folder;
      Plan plan = plan_of(change.model, change.from);
      plan.job.precision = precision;
      const RunOutcome trained = saving_run(plan, folder / "checkpoints");
      const auto checkpoint = read_checkpoint(folder / "checkpoints" / checkpoint_name(kAll));
      ASSERT_TRUE(checkpoint) << to_string(checkpoint.error());
      const auto exported = export_hugging_face(*checkpoint, folder / "export", 5'000);
      ASSERT_TRUE(exported) << to_string(exported.error());
      EXPECT_TRUE(std::filesystem::exists(folder / "export" / "model.safetensors.index.json"));
      EXPECT_FALSE(export_hugging_face(*checkpoint, folder / "export")) << "not over something";
      plan.layout = change.to;
      plan.cluster.tiers.front().fanout = change.to.world();
      Besides besides;
      besides.weights = folder / "export";
      const RunOutcome started = run_threads(plan, 0, {}, true, besides);
      ASSERT_EQ(started.weights.size(), trained.weights.size());
      for (const auto& [name, weight] : trained.weights) EXPECT_TRUE(started.weights.at(name).equal(weight)) << name;
    }
}

/// The same sequences in every layout, whatever file they come from.
TEST(Tokens, OfAFileAreTheSameInEveryLayout) {
  Besides besides;
  besides.tokens = [](std::int64_t sequence, std::int64_t count) {
    std::vector<std::int64_t> tokens;
    for (std::int64_t i = 0; i <= count; ++i) tokens.push_back((sequence * 17 + i * i) % 51);
    return tokens;
  };
  const RunOutcome whole = run_threads(plan_of(llama_like(), alone()), 2, {}, true, besides);
  const RunOutcome synthetic = run_threads(plan_of(llama_like(), alone()), 2);
  EXPECT_NE(whole.losses[0], synthetic.losses[0]);
  for (const Layout& other : {tp2_pp2(), sharded(ShardingKind::parameters, 4), layout([](Layout& l) { l.cp = 2; })}) {
    const RunOutcome split = run_threads(plan_of(llama_like(), other), 2, {}, true, besides);
    for (std::size_t step = 0; step < 2; ++step) EXPECT_NEAR(split.losses[step] / whole.losses[step], 1, kLoss);
  }
}

} // namespace
} // namespace foretrain
