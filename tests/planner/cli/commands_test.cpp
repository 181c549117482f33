#include "tests/planner/cli/program.h"
#include "tests/support/places.h"

namespace foretrain::test {
namespace {

TEST(PredictCommand, SaysWhatFitsByExitCode) {
  const Folder folder;
  const Outcome fits = foretrain({"predict", plan_file(folder), "--json"});
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_EQ(fits.json()["verdict"], "fits");
  const std::string large =
      folder.write("large.json", R"({ "model": "llama3-70b", "cluster": { "preset": "dgx-h100", "devices": 8 },
    "job": { "sequence_length": 8192, "global_batch": 8 }, "layout": { "tp": 8, "sequence_parallel": true } })");
  const Outcome oom = foretrain({"predict", large, "--json"});
  EXPECT_EQ(oom.code, 2) << oom.err;
  const Json json = oom.json();
  EXPECT_EQ(json["verdict"], "oom");
  EXPECT_GT(json["step_time_s"].get<double>(), 0) << "also of what does not fit";
  EXPECT_EQ(json["rejections"][0]["rule"], "out-of-memory");
  const std::string illegal =
      folder.write("illegal.json", R"({ "model": "llama3-70b", "cluster": { "preset": "dgx-h100", "devices": 8 },
    "job": { "sequence_length": 8192, "global_batch": 8 }, "layout": { "tp": 4 } })");
  const Outcome refused = foretrain({"predict", illegal, "--json"});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_EQ(refused.json()["verdict"], "illegal");
  const Json told = refused.json();
  ASSERT_FALSE(told["rejections"].empty());
  for (const Json& rejection : told["rejections"])
    for (const char* key : {"rule", "reason", "needed", "available", "nearest"})
      EXPECT_TRUE(rejection.contains(key)) << key;
  EXPECT_EQ(foretrain({"program", illegal}).code, 2);
  EXPECT_EQ(foretrain({"explain", illegal}).code, 2);
}

TEST(PredictCommand, WritesATimelineThatOpens) {
  const Folder folder;
  const std::string trace = folder / "trace.json";
  const Outcome outcome = foretrain({"predict", plan_file(folder), "--trace", trace, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["verdict"], "fits") << "stdout has the document alone";
  const auto json = read_json_file(trace);
  ASSERT_TRUE(json) << to_string(json.error());
  ASSERT_TRUE(json->contains("traceEvents"));
  bool memory = false;
  for (const Json& event : (*json)["traceEvents"]) memory = memory || event["ph"] == "C";
  EXPECT_TRUE(memory) << "a memory counter";
  EXPECT_EQ(foretrain({"predict", plan_file(folder), "--trace", folder / "no/such/folder.json"}).code, 1);
}

TEST(PredictCommand, SimulatesOnTheNetwork) {
  const Folder folder;
  const std::string plan = plan_file(folder);
  const Json network = foretrain({"predict", plan, "--engine", "simgrid", "--json"}).json();
  const Json replayed = foretrain({"predict", plan, "--engine", "replay", "--json"}).json();
  const double seconds = replayed["step_time_s"].get<double>();
  // One node: nothing contends, and both agree.
  EXPECT_NEAR(network["step_time_s"].get<double>(), seconds, 0.001 * seconds);
}

TEST(ExplainCommand, FindsABaselineByItself) {
  const Folder folder;
  const Outcome outcome = foretrain({"explain", plan_file(folder), "--engine", "slots"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("against the best of a search"), std::string::npos) << outcome.out;
}

TEST(ProgramCommand, PrintsOneRoleAndItsVerdict) {
  const Folder folder;
  const std::string plan = plan_file(folder);
  const Outcome text = foretrain({"program", plan, "--role", "1"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("\nrole 1"), std::string::npos);
  EXPECT_EQ(text.out.find("\nrole 0"), std::string::npos);
  EXPECT_NE(text.out.find("no deadlock"), std::string::npos);
  const Json json = foretrain({"program", plan, "--json"}).json();
  EXPECT_EQ(json["roles"].size(), 2U);
  EXPECT_TRUE(json["problems"].empty());
  EXPECT_EQ(foretrain({"program", plan, "--role", "2"}).code, 1);
}

TEST(PresetsCommand, ListsAndPrintsWhatPlanTakes) {
  for (const char* kind : {"models", "devices", "clusters", "semantics"}) {
    const Outcome list = foretrain({"presets", kind, "--json"});
    ASSERT_EQ(list.code, 0) << list.err;
    EXPECT_GT(list.json()[kind].size(), 5U) << kind;
  }
  const Folder folder;
  const std::string model = folder.write("model.json", foretrain({"presets", "models", "llama3.2-1b"}).out);
  const std::string cluster = folder.write("cluster.json", foretrain({"presets", "clusters", "dgx-h100"}).out);
  std::vector<std::string> arguments = small_plan({"--csv"});
  const std::string expected = foretrain(arguments).out;
  arguments[2] = model;
  arguments[4] = cluster;
  const Outcome outcome = foretrain(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, expected);
}

// Mixtral-8x7B: 46,702,792,704 in all (Hugging Face safetensors total), 12,879,925,248 of a token.
TEST(PresetsCommand, CountParametersTotalAndActive) {
  const Json told = foretrain({"presets", "models", "--json"}).json();
  for (const Json& model : told["models"])
    if (model["name"] == "mixtral-8x7b") {
      EXPECT_EQ(model["parameters"], 46'702'792'704);
      EXPECT_EQ(model["active_parameters"], 12'879'925'248);
    }
  EXPECT_NE(foretrain({"presets", "models"}).out.find("46.7 B"), std::string::npos);
}

// A vision tower without a formula: what was left out stands in every report.
TEST(PredictCommand, SaysWhatTheReaderOfTheModelLeftOut) {
  const Folder folder;
  const std::string model =
      folder.write("config.json", R"({"model_type": "mistral3", "vision_config": {"hidden_size": 1024}, "text_config": {
        "model_type": "mistral", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000}})");
  const std::string plan = folder.write("plan.json", R"({"model": "config.json",
    "cluster": {"preset": "dgx-h100", "devices": 8}, "job": {"sequence_length": 1024, "global_batch": 8},
    "layout": {"dp_shard": 8}})");
  const char* note = "vision tower not counted";
  EXPECT_NE(foretrain({"predict", plan, "--engine", "slots"}).out.find(note), std::string::npos);
  const Json json = foretrain({"predict", plan, "--engine", "slots", "--json"}).json();
  EXPECT_EQ(json["model"]["notes"].size(), 1U);
  EXPECT_GT(json["model"]["parameters"].get<std::int64_t>(), 0);
  const std::vector<std::string> search = {"plan",   "--model",  model,       "--cluster", "dgx-h100",
                                           "--gpus", "8",        "--seq-len", "1024",      "--global-batch",
                                           "8",      "--engine", "slots",     "--where",   "dp == 8"};
  EXPECT_NE(foretrain(search).out.find(note), std::string::npos);
  std::vector<std::string> as_json = search;
  as_json.emplace_back("--json");
  EXPECT_EQ(foretrain(as_json).json()["model"]["notes"].size(), 1U);
  EXPECT_EQ(foretrain({"presets", "models", model}).json()["hidden"], 1024);
}

TEST(Help, NamesTheWholeCommand) {
  EXPECT_NE(foretrain({"plan", "--help"}).out.find("Usage: foretrain plan"), std::string::npos);
  EXPECT_NE(foretrain({"db", "best", "--help"}).out.find("Usage: foretrain db best"), std::string::npos);
}

TEST(PresetsCommand, ColorsOnRequestOnly) {
  const std::string plain = foretrain({"presets", "models"}).out;
  EXPECT_EQ(plain.find('\033'), std::string::npos) << "stdout is no terminal";
  EXPECT_EQ(foretrain({"--color", "always", "presets", "models"}).out.rfind("\033[1m", 0), 0U);
  EXPECT_EQ(foretrain({"--color", "never", "presets", "models"}).out, plain);
}

TEST(SchemaCommand, PrintsEverySchemaOfItsList) {
  const Outcome list = foretrain({"schema"});
  ASSERT_EQ(list.code, 0);
  std::size_t start = 0;
  int count = 0;
  while (start < list.out.size()) {
    const std::size_t end = list.out.find('\n', start);
    const Outcome schema = foretrain({"schema", list.out.substr(start, end - start)});
    EXPECT_EQ(schema.code, 0) << schema.err;
    EXPECT_TRUE(schema.json().contains("$schema") || schema.json().contains("type"));
    start = end + 1;
    ++count;
  }
  EXPECT_GE(count, 6);
}

TEST(ValidateCommand, ComparesWhatSaysEnoughAndSaysWhyItSkipsTheRest) {
  const std::string rows = test::source_folder() / "data/measured/simumax_b200.csv";
  const Folder folder;
  const std::string other = folder.write("other.csv", "a,b\n1,2\n");
  const Outcome outcome = foretrain({"validate", rows, other, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = outcome.json();
  ASSERT_FALSE(json["rows"].empty());
  int compared = 0;
  for (const Json& row : json["rows"]) {
    ASSERT_TRUE(row.contains("source") && row.contains("row_id") && row.contains("skipped"));
    if (!row["skipped"].is_null()) continue;
    ++compared;
    for (const char* key : {"predicted", "measured", "error_percent", "verdict"}) EXPECT_TRUE(row.contains(key)) << key;
    const Json& error = row["error_percent"]["memory"];
    if (error.is_null()) continue;
    const double predicted = row["predicted"]["memory_bytes"].get<double>();
    const double measured = row["measured"]["memory_bytes"].get<double>();
    EXPECT_NEAR(error.get<double>(), 100 * (predicted - measured) / measured, 1e-9);
  }
  EXPECT_GT(compared, 0);
  EXPECT_EQ(json["summary"]["overall"]["compared"], compared);
  EXPECT_FALSE(json["summary"]["sources"].empty());
  ASSERT_EQ(json["skipped_files"].size(), 1U);
  EXPECT_EQ(foretrain({"validate", folder / "missing.csv"}).code, 1);
}

} // namespace
} // namespace foretrain::test
