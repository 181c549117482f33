#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "core/spec/measurement.h"
#include "tests/core/spec/measured_rows.h"

namespace foretrain {
namespace {

using test::data;
using test::dense;
using test::plan;
using test::read;
using test::skipped;

TEST(Measurement, BecomesAPlan) {
  const auto measured = plan(dense());
  ASSERT_TRUE(measured) << to_string(measured.error());
  const Plan& got = measured->plan;
  EXPECT_EQ(got.model.head_dim, 64) << "hidden / heads";
  EXPECT_EQ(got.model.kv_heads, 4);
  EXPECT_EQ(device_count(got.cluster), 16);
  EXPECT_EQ(got.cluster.device.name, "h100-sxm-80gb");
  EXPECT_EQ(got.job.sequence_length, 2048);
  EXPECT_EQ(got.job.semantics, "megatron-core");
  EXPECT_EQ(got.layout.tp, 2);
  EXPECT_EQ(got.layout.pp, 2);
  EXPECT_EQ(got.layout.dp(), 4);
  EXPECT_TRUE(got.layout.sequence_parallel);
  EXPECT_EQ(got.layout.schedule.kind, "1f1b");
  EXPECT_EQ(got.layout.sharding.kind, ShardingKind::optimizer);
  EXPECT_EQ(measured->step_time, Seconds(1.5));
  EXPECT_EQ(measured->memory, Bytes(21 * kGiB / 2));
}

TEST(Measurement, OverlapsTransfersUnlessTheRunDidNot) {
  const std::vector<Assumption> assumptions = {{"overlap_transfers", "0", {}, "why"}};
  const auto result = plan_of(read(dense(), assumptions), read_measured_names(data()).value(), data());
  ASSERT_TRUE(result && *result);
  EXPECT_FALSE((*result)->plan.layout.overlap.p2p);
  EXPECT_TRUE(plan(dense())->plan.layout.overlap.p2p);
}

TEST(Measurement, DerivesWhatTheFamilyFixes) {
  auto cells = dense();
  cells["ffn_hidden"] = "";
  cells["n_kv_heads"] = "";
  cells["gated_mlp"] = "0";
  const auto measured = plan(cells);
  ASSERT_TRUE(measured) << to_string(measured.error());
  EXPECT_EQ(measured->plan.model.ffn, 4096);
  EXPECT_EQ(measured->plan.model.kv_heads, 16);
  EXPECT_EQ(skipped({{"ffn_hidden", ""}}), "missing ffn_hidden") << "a gated width follows no rule";
}

TEST(Measurement, ReadsExpertsPerLayer) {
  auto cells = dense();
  cells.insert({{"n_experts", "8"},
                {"top_k", "2"},
                {"moe_ffn_hidden", "512"},
                {"n_shared_experts", "2"},
                {"moe_layer_freq", "([0]*1+[1]*3)"},
                {"ep", "4"}});
  const auto measured = plan(cells);
  ASSERT_TRUE(measured) << to_string(measured.error());
  const MoeSpec& moe = measured->plan.model.moe.value();
  EXPECT_EQ(moe.first_dense, 1);
  EXPECT_EQ(moe.every, 1);
  EXPECT_EQ(moe.shared_ffn, 1024);
  EXPECT_EQ(measured->plan.layout.ep, 4);
  cells["moe_layer_freq"] = "[0,1]*2";
  EXPECT_EQ(plan(cells)->plan.model.moe->dense_layers, std::vector<int>{2}) << "layer 0 is the dense prefix";
  cells["moe_layer_freq"] = "[1]*1000000000";
  EXPECT_EQ(to_string(plan(cells).error()), "unsupported-feature moe_layer_freq [1]*1000000000");
}

TEST(Measurement, ReadsLatentAttentionFromTheNotes) {
  auto cells = dense();
  cells["notes"] = "mla=q_lora=1536,kv_lora=512,qk_nope=128,qk_rope=64,v=128;norm=RMSNorm";
  const auto measured = plan(cells);
  ASSERT_TRUE(measured) << to_string(measured.error());
  EXPECT_EQ(measured->plan.model.latent, (LatentAttention{1536, 512, 128, 64, 128, 0, 0}));
  EXPECT_EQ(extras_in_notes("x; MLA q_lora1536 kv_lora512 qk_nope128 qk_rope64 v128").at("mla"),
            "q 1536 kv 512 nope 128 rope 64 v 128");
}

// Of latent attention the argument means its own norms, which it has in any case.
TEST(Measurement, ReadsNormsOfQueriesAndKeysFromMegatronsArguments) {
  auto cells = dense();
  cells["notes"] = "norm=LayerNorm;other_args=qk-layernorm,test-mode";
  const auto normed = plan(cells);
  ASSERT_TRUE(normed) << to_string(normed.error());
  EXPECT_EQ(normed->plan.model.qk_norm, QkNorm::per_head);
  cells["notes"] = "mla=q_lora=1536,kv_lora=512,qk_nope=128,qk_rope=64,v=128;other_args=qk-layernorm";
  EXPECT_EQ(plan(cells)->plan.model.qk_norm, QkNorm::none);
  cells["notes"] = "other_args=test-mode";
  EXPECT_EQ(plan(cells)->plan.model.qk_norm, QkNorm::none);
}

// 64 sequences on two replicas in micro-batches of two make 16, on four stages 4 groups or, said so, 2 of 5 and one
// of 6.
TEST(Measurement, ReadsTheSizeOfGroupsFromMegatronsArguments) {
  auto cells = dense();
  cells.insert({{"vp", "2"}, {"schedule", "interleaved 1F1B"}});
  cells["pp"] = "4";
  cells["n_layers"] = "8";
  EXPECT_EQ(plan(cells)->plan.layout.schedule, (ScheduleChoice{"interleaved", 2}));
  const auto with = [&](const char* group) {
    cells["notes"] = std::string("other_args=test-mode,microbatch-group-size-per-virtual-pipeline-stage:") + group +
                     ",attention-softmax-in-fp32";
  };
  with("6");
  EXPECT_EQ(plan(cells)->plan.layout.schedule, (ScheduleChoice{"interleaved", 2, 6}));
  with("4");
  EXPECT_EQ(plan(cells)->plan.layout.schedule, (ScheduleChoice{"interleaved", 2})) << "as many as stages";
  with("5");
  EXPECT_EQ(to_string(plan(cells).error()), "inconsistent 16 micro-batches in groups of 5");
  cells["global_batch_seqs"] = "40";
  EXPECT_EQ(plan(cells)->plan.layout.schedule, (ScheduleChoice{"interleaved", 2, 5}));
  cells["notes"] = "other_args=test-mode";
  EXPECT_EQ(to_string(plan(cells).error()),
            "unsupported-schedule micro-batches in groups of another size than the stages");
}

TEST(Measurement, SkipsARowForOneReason) {
  EXPECT_EQ(skipped({{"vocab", ""}}), "missing vocab");
  EXPECT_EQ(skipped({{"micro_batch_seqs", ""}}), "missing micro_batch_seqs");
  EXPECT_EQ(skipped({{"recompute", ""}}), "missing recompute");
  EXPECT_EQ(skipped({{"doubtful", "1"}}), "doubtful marked in the collection");
  EXPECT_EQ(skipped({{"notes", "LOW consistency"}}), "reduced-information LOW consistency");
  EXPECT_EQ(skipped({{"model", "llama3-70b (LoRA)"}}), "fine-tuning llama3-70b (LoRA)");
  EXPECT_EQ(skipped({{"notes", "hybrid Mamba/attention MoE"}}), "hybrid-model some model");
  EXPECT_EQ(skipped({{"gpu", "Abacus"}}), "unknown-device Abacus");
  EXPECT_EQ(skipped({{"framework", "an in-house trainer"}}), "unknown-framework an in-house trainer");
  EXPECT_EQ(skipped({{"precision", "int4"}}), "unsupported-precision int4");
  EXPECT_EQ(skipped({{"schedule", "zbv"}}), "unsupported-schedule zbv");
  EXPECT_EQ(skipped({{"zero_stage_or_fsdp", "ZeRO-9"}}), "unsupported-sharding ZeRO-9");
  EXPECT_EQ(skipped({{"recompute", "partly"}}), "unsupported-recompute partly");
  EXPECT_EQ(skipped({{"n_gpus", "18"}}), "inconsistent 18 devices, tp*pp*cp 4");
  EXPECT_EQ(skipped({{"dp", "3"}}), "inconsistent dp 3, devices say 4");
  EXPECT_EQ(skipped({{"outcome", "Kernel not available"}}), "outcome Kernel not available");
  EXPECT_EQ(skipped({{"iter_time_s", ""}, {"peak_mem_gib", ""}}), "nothing-measured");
  EXPECT_EQ(skipped({{"notes", "tokens/s and iter time via 6N+12Lhs"}, {"peak_mem_gib", ""}}), "time-from-mfu");
}

TEST(Measurement, KeepsTheMemoryOfARowWhoseTimeIsDerived) {
  auto cells = dense();
  cells["notes"] = "tokens/s and iter time via 6N+12Lhs";
  const auto measured = plan(cells);
  ASSERT_TRUE(measured);
  EXPECT_FALSE(measured->step_time);
  EXPECT_TRUE(measured->memory);
}

TEST(Measurement, MarksRunsWhoseStepsDifferMuch) {
  auto cells = dense();
  const double time = std::stod(cells["iter_time_s"]);
  const auto with_spread = [&](double share) {
    cells["notes"] = fmt::format("iter_p25={};iter_p75={}", time * (1 - share / 2), time * (1 + share / 2));
    return plan(cells);
  };
  const auto steady = with_spread(0.09);
  ASSERT_TRUE(steady);
  EXPECT_TRUE(steady->step_time);
  EXPECT_FALSE(steady->unsteady);
  const auto unsteady = with_spread(0.11);
  ASSERT_TRUE(unsteady);
  EXPECT_TRUE(unsteady->step_time) << "judged like the rest";
  EXPECT_TRUE(unsteady->unsteady);
}

TEST(Measurement, KeepsARunThatRanOutOfMemory) {
  auto cells = dense();
  cells["outcome"] = "OOM Error";
  cells["iter_time_s"] = "";
  cells["peak_mem_gib"] = "";
  const auto measured = plan(cells);
  ASSERT_TRUE(measured);
  EXPECT_TRUE(measured->out_of_memory);
}

} // namespace
} // namespace foretrain
