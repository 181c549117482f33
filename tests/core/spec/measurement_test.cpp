#include "core/spec/measurement.h"

#include <filesystem>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/core/spec/measured_rows.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

using test::data;
using test::dense;
using test::header;
using test::plan;
using test::read;
using test::row;
using test::skipped;

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
