#include "core/spec/measurement.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

std::string header() {
  std::string line;
  for (const std::string_view column : kMeasurementColumns) line += (line.empty() ? "" : ",") + std::string(column);
  return line + "\r\n";
}

/// A row with the given cells; the others are empty.
std::string row(const std::map<std::string, std::string>& cells) {
  std::string line;
  for (const std::string_view column : kMeasurementColumns) {
    if (column != kMeasurementColumns.front()) line += ',';
    if (const auto cell = cells.find(std::string(column)); cell != cells.end()) line += '"' + cell->second + '"';
  }
  return line + "\r\n";
}

/// A complete dense run.
std::map<std::string, std::string> dense() {
  return {{"source", "a report"},
          {"row_id", "r1"},
          {"model", "some model"},
          {"n_layers", "4"},
          {"hidden", "1024"},
          {"n_heads", "16"},
          {"n_kv_heads", "4"},
          {"ffn_hidden", "2816"},
          {"gated_mlp", "1"},
          {"vocab", "32000"},
          {"tied_embeddings", "0"},
          {"seq_len", "2048"},
          {"global_batch_seqs", "64"},
          {"micro_batch_seqs", "2"},
          {"n_gpus", "16"},
          {"gpu", "H100-SXM-80GB"},
          {"tp", "2"},
          {"sp", "1"},
          {"pp", "2"},
          {"cp", "1"},
          {"zero_stage_or_fsdp", "ZeRO-1"},
          {"recompute", "none"},
          {"precision", "bf16"},
          {"framework", "Megatron-LM"},
          {"iter_time_s", "1.5"},
          {"peak_mem_gib", "10.5"},
          {"mem_kind", "allocated"},
          {"outcome", "ok"}};
}

Measurement read(const std::map<std::string, std::string>& cells, const std::vector<Assumption>& assumptions = {}) {
  auto file = parse_measurements(header() + row(cells), "a.csv", assumptions);
  EXPECT_TRUE(file) << (file ? "" : to_string(file.error()));
  return file->rows.at(0);
}

tl::expected<MeasuredPlan, Skip> plan(const std::map<std::string, std::string>& cells) {
  auto result = plan_of(read(cells), read_measured_names(data()).value(), data());
  EXPECT_TRUE(result) << (result ? "" : to_string(result.error()));
  return *result;
}

std::string skipped(const std::map<std::string, std::string>& changes) {
  auto cells = dense();
  for (const auto& [column, value] : changes) cells[column] = value;
  const auto result = plan(cells);
  return result ? "" : to_string(result.error());
}

std::string problem(const std::string& text) {
  const auto file = parse_measurements(text, "a.csv", {});
  return file ? "" : to_string(file.error());
}

TEST(Measurement, ReadsCellsByTheirKindAndLeavesEmptyOnesAbsent) {
  const Measurement measured = read(dense());
  EXPECT_EQ(measured.source, "a report");
  EXPECT_EQ(measured.line, 2);
  EXPECT_EQ(measured.layers, 4);
  EXPECT_EQ(measured.gated, true);
  EXPECT_EQ(measured.tied_embeddings, false);
  EXPECT_EQ(measured.head_dim, std::nullopt);
  EXPECT_EQ(measured.global_batch, 64);
  EXPECT_EQ(measured.step_time, Seconds(1.5));
  EXPECT_EQ(measured.peak_memory, Bytes(21 * kGiB / 2));
  EXPECT_EQ(measured.memory_kind, MemoryKind::allocated);
  EXPECT_EQ(measured.memory_rank, MemoryRank::unstated);
  EXPECT_FALSE(measured.doubtful);
}

TEST(Measurement, SkipsAFileWithAnotherHeaderAndSaysWhy) {
  const auto file = parse_measurements("source,locator,gpu,m,n,k\r\na,b,c,1,2,3\r\n", "gemm.csv", {}).value();
  EXPECT_TRUE(file.rows.empty());
  EXPECT_NE(file.skipped.value().find("6 columns"), std::string::npos);
}

TEST(Measurement, RefusesACellThatIsNotOfItsKindWithLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"n_layers", "many"},   {"n_layers", "-1"},    {"n_layers", "1e308"}, {"n_layers", "99999999999"},
      {"iter_time_s", "nan"}, {"iter_time_s", "-1"}, {"sp", "yes"},         {"iter_time_s", "1.5 s"},
      {"mem_kind", "active"}};
  for (const auto& [column, value] : wrong) {
    auto cells = dense();
    cells[column] = value;
    const std::string message = problem(header() + row(dense()) + row(cells));
    EXPECT_NE(message.find("a.csv:3: column " + column + ": '" + value + "'"), std::string::npos) << message;
  }
}

TEST(Measurement, RefusesWhatIsNotCsvWithTheLine) {
  EXPECT_NE(problem(header() + "\"open").find("a.csv:2: a quote is not closed"), std::string::npos);
  EXPECT_NE(problem(header() + "1,2\r\n").find("a.csv:2: 2 columns, the header has 51"), std::string::npos);
  EXPECT_NE(problem(header() + std::string(3, '\0')).find("a.csv:2: control character"), std::string::npos);
  EXPECT_NE(problem("").find("empty"), std::string::npos);
  EXPECT_FALSE(read_measurements("no-such-file.csv", {}));
}

TEST(Measurement, TakesTheStepTimeFromARateWhereNoTimeIsPrinted) {
  auto cells = dense();
  cells["iter_time_s"] = "";
  cells["tokens_per_s_per_gpu"] = "4096";
  EXPECT_EQ(measured_step_time(read(cells)), Seconds(64 * 2048.0 / (4096 * 16)));
}

TEST(Measurement, FillsEmptyCellsFromAssumptionsAndSaysSo) {
  auto cells = dense();
  cells["recompute"] = "";
  const std::vector<Assumption> assumptions = {{"recompute", "full", {{"model", {"some model"}}}, "why"},
                                               {"sp", "0", {}, "stated already"},
                                               {"tp", "8", {{"model", {"another"}}}, "other rows"},
                                               {"norm", "layer", {}, "why"}};
  const Measurement measured = read(cells, assumptions);
  EXPECT_EQ(measured.recompute, "full");
  EXPECT_EQ(measured.sequence_parallel, true);
  EXPECT_EQ(measured.tp, 2);
  EXPECT_EQ(measured.extras.at("norm"), "layer");
  EXPECT_EQ(measured.assumed, (std::vector<std::string>{"recompute full", "norm layer"}));
}

TEST(Measurement, SaysWhatMemoryHangsOnAndTheSourceLeavesOpen) {
  auto cells = dense();
  EXPECT_TRUE(read(cells, {{"recompute", "full", {}, "not stated", true}}).memory_open.empty()) << "stated";
  cells["recompute"] = "";
  EXPECT_EQ(read(cells, {{"recompute", "none", {}, "not stated", true}}).memory_open,
            std::vector<std::string>{"recompute"});
  EXPECT_TRUE(read(cells, {{"recompute", "none", {}, "the script"}}).memory_open.empty())
      << "the source says it elsewhere";
  cells["recompute"] = "none";
  cells["notes"] = "recipe X, cpu_offloading_num_layers=20";
  EXPECT_EQ(read(cells).memory_open, std::vector<std::string>{"offload"});
}

TEST(Measurement, TellsRunsThatReplayGraphsOfKernels) {
  auto cells = dense();
  cells["notes"] = "other_args=deterministic-mode,cuda-graph-impl:transformer_engine,cuda-graph-scope:attn";
  EXPECT_EQ(read(cells).extras.at("semantics"), "megatron-core-graphs");
}

/// docs/accuracy.md, Protocol: what is stated decides, not what an assumption fills in.
TEST(Measurement, IsEligibleByWhatTheSourceStates) {
  EXPECT_TRUE(read(dense()).eligible);
  for (const char* column : {"gpu", "n_gpus", "n_layers", "hidden", "n_heads", "seq_len", "global_batch_seqs"}) {
    auto cells = dense();
    cells[column] = "";
    EXPECT_FALSE(read(cells, {{"global_batch_seqs", "64", {}, "assumed"}}).eligible) << column;
  }
  auto cells = dense();
  cells["doubtful"] = "1";
  EXPECT_FALSE(read(cells).eligible);
  cells = dense();
  cells["notes"] = "iter_time DERIVED from TF (recompute counted)";
  EXPECT_TRUE(read(cells).eligible) << "its memory is measured";
  cells["peak_mem_gib"] = "";
  EXPECT_FALSE(read(cells).eligible) << "its time is not";
}

TEST(Measurement, TakesTheMicroBatchFromTheAccumulation) {
  auto cells = dense();
  cells["micro_batch_seqs"] = "";
  const auto names = read_measured_names(data()).value();
  const auto micro_batch = [&](const char* accumulation) {
    const auto got = plan_of(read(cells, {{"accumulation", accumulation, {}, "the log"}}), names, data()).value();
    return got ? std::to_string(got->plan.layout.micro_batch) : to_string(got.error());
  };
  EXPECT_EQ(micro_batch("2"), "8"); // 64 sequences, 4 replicas
  EXPECT_EQ(micro_batch("3"), "inconsistent batch 64 in 12 micro-batches");
}

TEST(Measurement, ReadsMethodAndCountOfFullRecomputation) {
  auto cells = dense();
  cells["recompute"] = "full block 21";
  const RecomputeChoice choice = plan(cells)->plan.layout.recompute;
  EXPECT_EQ(choice.kind, RecomputeKind::full);
  EXPECT_EQ(choice.method, RecomputeMethod::block);
  EXPECT_EQ(choice.count, 21);
  EXPECT_EQ(skipped({{"recompute", "full sometimes"}}), "unsupported-recompute full sometimes");
}

TEST(Measurement, FineTuningOnPackedSequencesNeedsTheirLengths) {
  EXPECT_EQ(skipped({{"model", "a model (SFT)"}}), "fine-tuning a model (SFT)");
  auto cells = dense();
  cells["model"] = "a model (SFT)";
  const Measurement full = read(cells, {{"packed", "full", {}, "the report"}});
  EXPECT_TRUE(plan_of(full, read_measured_names(data()).value(), data()).value());
}

/// MaxText's log of 256 H200: shards over 128 devices, two replicas.
TEST(Measurement, ReadsShardsAndReplicas) {
  auto cells = dense();
  cells["framework"] = "torchtitan";
  cells["tp"] = cells["pp"] = "1";
  cells["zero_stage_or_fsdp"] = "FSDP 128 x DP 2";
  cells["n_gpus"] = "256";
  cells["global_batch_seqs"] = "512";
  const auto got = plan(cells);
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->plan.layout.dp_shard, 128);
  EXPECT_EQ(got->plan.layout.dp_replicate, 2);

  cells["zero_stage_or_fsdp"] = "FSDP2 shard 1"; // AutoModel's adapters in pipelines: nothing is sharded
  const auto whole = plan(cells);
  ASSERT_TRUE(whole) << to_string(whole.error());
  EXPECT_EQ(whole->plan.layout.sharding.kind, ShardingKind::none);
  EXPECT_EQ(whole->plan.layout.dp_shard, 256);
  EXPECT_EQ(whole->plan.layout.dp_replicate, 1);
}

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

TEST(Assumptions, RefuseAnUnknownKey) {
  const fs::path root = fs::temp_directory_path() / "foretrain-assumptions-test";
  fs::create_directories(root / "assumptions");
  ASSERT_TRUE(
      write_text_file(root / "assumptions/a.json", R"({"assumptions": [{"key": "vocabs", "value": "1", "why": ""}]})"));
  const auto read = read_assumptions(DataFolder{root}, "a");
  fs::remove_all(root);
  ASSERT_FALSE(read);
  EXPECT_NE(to_string(read.error()).find("vocabs"), std::string::npos);
  EXPECT_NE(to_string(read.error()).find("vocab"), std::string::npos);
  EXPECT_TRUE(read_assumptions(data(), "no-such-source").value().empty());
}

} // namespace
} // namespace foretrain
