#include "tests/planner/cli/program.h"

/// What users type wrong, and the files that they have.
namespace foretrain::test {
namespace {

struct Wrong {
  std::vector<std::string> arguments;
  const char* said; ///< part of the message
};

void expect_refused(const Wrong& wrong) {
  const Outcome outcome = foretrain(wrong.arguments);
  std::string line;
  for (const std::string& argument : wrong.arguments) line += argument.substr(0, 60) + " ";
  EXPECT_EQ(outcome.code, 1) << line << outcome.err;
  EXPECT_EQ(outcome.out, "") << line;
  EXPECT_NE(outcome.err.find(wrong.said), std::string::npos) << line << "\n" << outcome.err;
}

std::vector<std::string> with(const char* flag, const char* value) {
  std::vector<std::string> arguments = small_plan();
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i)
    if (arguments[i] == flag) {
      arguments[i + 1] = value;
      return arguments;
    }
  arguments.emplace_back(flag);
  arguments.emplace_back(value);
  return arguments;
}

TEST(Arguments, MistakesAreNamedWithWhatWouldBeRight) {
  for (const Wrong& wrong : std::vector<Wrong>{
           {{"plam"}, "did you mean 'plan'"},
           {{}, "foretrain --help"},
           {{"plan", "--modle", "x"}, "did you mean '--model'"},
           {{"plan"}, "--model"},
           {{"plan", "--model", "llama3-8b"}, "--cluster"},
           {with("--global-batch", "99999999999999999999"), "'99999999999999999999' is not a whole number of at most"},
           {with("--global-batch", "1e308"), "'1e308' is not a whole number"},
           {with("--seq-len", "9223372036854775807"), "'9223372036854775807' is not a whole number of at most"},
           {with("--seq-len", "4k"), "'4k' is not a whole number"},
           {with("--model", "llama3.2-1bb"), "llama3.2-1b"},
           {with("--model", "模型"), "模型"},
           {with("--cluster", "dgx-h1000"), "dgx-h100"},
           {with("--gpus", "0"), "--gpus"},
           {with("--gpus", "-8"), "--gpus"},
           {with("--gpus", "9"), "9"},
           {with("--gpus", "eight"), "'eight' is not a whole number"},
           {with("--gpus", "99999999999"), "--gpus"},
           {with("--seq-len", "0"), "--seq-len: 0 is out of range"},
           {with("--global-batch", "-1"), "--global-batch: -1 is out of range"},
           {with("--lora", "100000000"), "--lora: 100000000 is out of range"},
           {with("--semantics", "megatron"), "--semantics: 'megatron' is unknown (did you mean 'megatron-core'"},
           {with("--cluster", "p5"), "--cluster: 'p5' is unknown"},
           {with("--cluster", "h100"), "did you mean 'azure-nd-h100-v5', 'dgx-h100'"},
           {with("--model", "llama9"), "--model: 'llama9' is unknown"},
           {small_plan({"--model", "gpt2"}), "--model: stands 2 times, once is meant"},
           {with("--where", "schedule == 1f2b"), "schedule cannot be compared with a number (one of: gpipe, 1f1b"},
           {with("--precision", "bf17"), "bf16"},
           {with("--objective", "speed"), "step-time"},
           {with("--engine", "magic"), "replay"},
           {with("--overlap-tp", "maybe"), "no, yes or both"},
           {with("--where", "tp == 8 and memry_gib < 3"), "column 13"},
           {with("--top", "0"), "--top"},
           {with("--jobs", "-1"), "--jobs"},
           {with("--objective", "cost"), "cost_per_device_hour"},
           {small_plan({"--json", "--csv"}), "--csv"},
           {{"--data", "nowhere", "presets", "models"}, "--data"},
           {{"presets", "model"}, "models"},
           {{"presets", "models", "llama3-8"}, "llama3-8b"},
           {{"schema", "plam"}, "plan"},
           {{"predict"}, "plan"},
           {{"predict", "a.json", "--gpus", "8"}, "'--gpus 8' is not expected here (foretrain predict --help)"},
           {{"explain", "a.json", "--jobs", "-3"}, "--jobs: -3 is not between 0 and 1024"},
           {{"validate", "a.csv", "--jobs", "5000"}, "--jobs: 5000 is not between 0 and 1024"},
           {{"calibrate", "--run", "3"}, "--run: names a run of a database, but no --runs names the database"},
           {{"db", "best"}, "foretrain db best --help"},
           {{"predict", "no-such-file.json"}, "no-such-file.json"},
           {{"db", "list", "no-such-file.db"}, "no-such-file.db"},
           {{"db", "lisst", "x"}, "did you mean 'list'"},
           {{"completion", "fish"}, "bash or zsh"},
           {{"presets", "models", "--color", "blue"}, "--color"},
       })
    expect_refused(wrong);
}

TEST(Arguments, FilesThatAreNoPlansAreNamed) {
  const Folder folder;
  const std::string truncated = R"({ "model": "llama3-8b", "cluster": )";
  for (const std::string& file :
       {folder.write("empty.json", ""), folder.write("truncated.json", truncated),
        folder.write("nan.json", R"({ "model": NaN })"), folder.write("binary.json", std::string("\0\1\2\xff", 4)),
        folder.write("deep.json", std::string(100'000, '[')),
        folder.write("huge.json", R"({ "model": { "layers": 1e308 } })"), folder.write("日本 \"語\".json", "{}"),
        folder / "."}) {
    for (const char* command : {"plan", "predict", "explain", "program"}) {
      const Outcome outcome = foretrain({command, file});
      EXPECT_EQ(outcome.code, 1) << command << " " << file << "\n" << outcome.err;
      EXPECT_NE(outcome.err.find(file.substr(file.rfind('/'))), std::string::npos) << outcome.err;
    }
  }
}

TEST(Arguments, FilesOfAnotherKindAreNamedAsWhatTheyAre) {
  const Folder folder;
  const std::string plan = plan_file(folder);
  const std::string report = folder.write("report.json", foretrain(small_plan({"--json"})).out);
  expect_refused({{"plan", plan}, "/layout: this is a plan, which has its layout"});
  for (const char* command : {"plan", "predict", "explain", "program"})
    expect_refused({{command, report}, "report.json: this is a report of foretrain plan (jq '.ranked[0].plan'"});
  const std::string kernels = (test::source_folder() / "data/measured/gemm.csv").string();
  expect_refused({{"validate", kernels}, "gemm.csv: not a file of runs"});
  const std::string rows = (test::source_folder() / "data/measured/zero_bubble_pp.csv").string();
  EXPECT_EQ(foretrain({"validate", kernels, rows, "--engine", "slots"}).code, 0) << "one of them is";
  ASSERT_EQ(foretrain(small_plan({"--db", folder / "a.db"})).code, 0);
  expect_refused({{"db", "best", folder / "a.db", "7"}, "no study 7 (foretrain db list "});
}

// What stands in a file may not steer the terminal that shows the message.
TEST(Arguments, MessagesHoldNoControlsAndNoBrokenText) {
  const Folder folder;
  const Outcome escape = foretrain({"plan", "--model", "a\033[31mb\xff\xc2\x9b模型"});
  EXPECT_EQ(escape.code, 1);
  const Outcome named = foretrain(with("--model", "a\033[31mb\xff\xc2\x9b模型"));
  EXPECT_NE(named.err.find(R"('a\x1b[31mb\xff\xc2\x9b模型' is unknown)"), std::string::npos) << named.err;
  const Outcome broken = foretrain({"predict", folder.write("a.json", "{\"model\": \"l\xffma\"}")});
  EXPECT_NE(broken.err.find(R"(\xff)"), std::string::npos) << broken.err;
  EXPECT_EQ(broken.err.find('\xff'), std::string::npos);
}

TEST(Arguments, AConfigurationIsNamedByItsFolder) {
  const Folder folder;
  std::filesystem::create_directories(folder / "some-model");
  const std::string config = folder.write("some-model/config.json", R"({ "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100 })");
  for (const std::string& file : {config, folder / "some-model/../some-model/./config.json"})
    EXPECT_EQ(foretrain({"presets", "models", file}).json()["name"], "some-model") << file;
}

TEST(Arguments, UnreadableFilesAreNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser reads every file";
  const Folder folder;
  const std::string file = plan_file(folder);
  std::filesystem::permissions(file, std::filesystem::perms::none);
  const Outcome outcome = foretrain({"predict", file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("plan.json"), std::string::npos) << outcome.err;
}

TEST(Arguments, UnicodeNamesAreNames) {
  const Folder folder;
  const std::string file =
      folder.write("план 計画.json", R"({ "model": { "name": "modèle ∞", "layers": 2, "hidden": 256,
    "heads": 4, "kv_heads": 4, "head_dim": 64, "ffn": 512, "vocab": 1000 }, "cluster": { "preset": "dgx-h100", "devices": 2 },
    "job": { "sequence_length": 128, "global_batch": 2 }, "layout": { "tp": 2 } })");
  const Outcome outcome = foretrain({"predict", file, "--engine", "slots"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("modèle ∞"), std::string::npos);
}

TEST(Arguments, AMillionDevicesAreAnsweredOrRefused) {
  const Outcome outcome = foretrain({"plan", "--model", "llama3.2-1b", "--cluster", "dgx-h100", "--gpus", "1000000",
                                     "--seq-len", "2048", "--global-batch", "1000000", "--engine", "slots", "--where",
                                     "tp == 8 and pp == 1 and cp == 1 and recompute == none", "--json"});
  EXPECT_TRUE(outcome.code == 0 || outcome.code == 1 || outcome.code == 2) << outcome.code << outcome.err;
  if (outcome.code == 1)
    EXPECT_NE(outcome.err.find("1000000"), std::string::npos) << outcome.err;
  else
    EXPECT_GT(outcome.json()["space"]["enumerated"].get<std::int64_t>(), 0);
}

TEST(Arguments, EveryCommandHasHelpWithAnExample) {
  for (const char* command :
       {"plan", "predict", "explain", "program", "validate", "presets", "schema", "db", "completion"}) {
    const Outcome outcome = foretrain({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(std::string("  foretrain ") + command), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(foretrain({"--help"}).code, 0);
  const Outcome version = foretrain({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("foretrain ", 0), 0U) << version.out;
}

TEST(Arguments, CompletionKnowsCommandsAndFlags) {
  const Outcome bash = foretrain({"completion", "bash"});
  EXPECT_EQ(bash.code, 0);
  for (const char* word : {"plan", "validate", "--global-batch", "complete -o default -F _foretrain foretrain"})
    EXPECT_NE(bash.out.find(word), std::string::npos) << word;
  EXPECT_EQ(foretrain({"completion", "zsh"}).out.rfind("#compdef foretrain", 0), 0U);
}

} // namespace
} // namespace foretrain::test
