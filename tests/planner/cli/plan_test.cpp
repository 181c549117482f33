#include <chrono>
#include <thread>

#include "tests/planner/cli/program.h"

namespace foretrain::test {
namespace {

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

void expect_keys(const Json& json, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) EXPECT_TRUE(json.contains(key)) << key;
}

/// What outside scripts rely on in a prediction.
void expect_prediction(const Json& prediction) {
  expect_keys(prediction, {"verdict", "step_time_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu_percent",
                           "flop_convention", "time", "memory", "rejections", "evidence", "interval"});
  const std::vector<std::string> parts = {"compute", "tp",     "cp",        "ep",   "pp",
                                          "dp",      "bubble", "optimizer", "host", "other"};
  expect_keys(prediction["time"], parts);
  double sum = 0;
  for (const std::string& part : parts) sum += prediction["time"][part].get<double>();
  const double step = prediction["step_time_s"].get<double>();
  EXPECT_NEAR(sum, step, 1e-6 * step) << "the parts add up to the step";
  ASSERT_FALSE(prediction["memory"].empty());
  for (const Json& stage : prediction["memory"]) {
    expect_keys(stage, {"allocated_bytes", "reserved_bytes", "device_bytes", "parts"});
    expect_keys(stage["parts"], {"parameters", "gradients", "master", "moments", "activations", "logits", "temporaries",
                                 "buckets", "communication", "context", "fragmentation"});
    std::int64_t bytes = 0;
    for (const auto& [part, value] : stage["parts"].items()) bytes += value.get<std::int64_t>();
    EXPECT_EQ(bytes, stage["device_bytes"].get<std::int64_t>()) << "the parts add up to the device's memory";
  }
  expect_keys(prediction["interval"], {"step_time_s", "memory_bytes"});
}

TEST(PlanCommand, PrintsOneDocumentWithTheKeysOfTheContract) {
  const Outcome outcome = foretrain(small_plan({"--json", "--top", "3"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json json = outcome.json();
  expect_keys(json, {"space", "elapsed_s", "search_s", "layouts_per_second", "jobs", "ranked", "pareto", "near_misses",
                     "tied_with_best", "preferred"});
  expect_keys(json["space"], {"enumerated", "legal", "evaluated", "pruned", "fits", "rejected"});
  ASSERT_EQ(json["ranked"].size(), 3U);
  for (const Json& entry : json["ranked"]) {
    EXPECT_EQ(keys_of(entry), (std::vector<std::string>{"plan", "prediction"}));
    expect_prediction(entry["prediction"]);
    EXPECT_LE(entry["plan"]["layout"]["pp"].get<int>(), 2) << "--where holds";
  }
  EXPECT_LE(json["ranked"][0]["prediction"]["step_time_s"].get<double>(),
            json["ranked"][2]["prediction"]["step_time_s"].get<double>());
  for (const Json& miss : json["near_misses"]) expect_keys(miss, {"plan", "rejection"});
}

TEST(PlanCommand, RankedPlansAreWhatPredictExplainAndProgramTake) {
  const Folder folder;
  const Json json = foretrain(small_plan({"--json", "--top", "2"})).json();
  ASSERT_EQ(json["ranked"].size(), 2U);
  const std::string file = folder.write("plan.json", json["ranked"][1]["plan"].dump());
  const Outcome predicted = foretrain({"predict", file, "--engine", "slots", "--json"});
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_EQ(predicted.json()["step_time_s"], json["ranked"][1]["prediction"]["step_time_s"]);
  const std::string best = folder.write("best.json", json["ranked"][0]["plan"].dump());
  const Outcome explained = foretrain({"explain", file, "--against", best, "--engine", "slots", "--json"});
  ASSERT_EQ(explained.code, 0) << explained.err;
  const Json explanation = explained.json();
  expect_keys(explanation, {"step_time_s", "baseline_step_time_s", "time", "layout_changes"});
  double difference = 0;
  for (const Json& part : explanation["time"]) difference += part["difference_s"].get<double>();
  EXPECT_NEAR(difference, explanation["step_time_s"].get<double>() - explanation["baseline_step_time_s"].get<double>(),
              1e-6);
  EXPECT_EQ(foretrain({"program", file}).code, 0);
}

TEST(PlanCommand, EqualStudiesGiveEqualReportsForAnyNumberOfThreads) {
  const auto without_times = [](const char* jobs) {
    Json json = foretrain(small_plan({"--json", "--jobs", jobs})).json();
    for (const char* key : {"elapsed_s", "search_s", "layouts_per_second", "jobs"}) json.erase(key);
    return json.dump();
  };
  EXPECT_EQ(without_times("1"), without_times("3"));
}

TEST(PlanCommand, StudyFilesAndFlagsSayTheSame) {
  const Folder folder;
  const std::string study =
      folder.write("study.json", R"({ "model": "llama3.2-1b", "cluster": { "preset": "dgx-h100", "devices": 4 },
    "job": { "sequence_length": 2048, "global_batch": 16 }, "objective": "step-time",
    "where": "pp <= 2 and cp == 1 and recompute != selective" })");
  const Outcome from_file = foretrain({"plan", study, "--engine", "slots", "--csv"});
  ASSERT_EQ(from_file.code, 0) << from_file.err;
  EXPECT_EQ(from_file.out, foretrain(small_plan({"--csv"})).out);
  EXPECT_EQ(from_file.out.substr(0, 6), "tp,pp,");
}

TEST(PlanCommand, TriesTensorParallelOverlapWhereItIsAskedFor) {
  const auto planned = [](const std::string& semantics, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--json", "--top", "20000", "--semantics", semantics});
    const Outcome outcome = foretrain(small_plan(flags));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  const auto overlapped = [](const Json& found) {
    int count = 0;
    for (const Json& entry : found["ranked"]) {
      const Json& layout = entry["plan"]["layout"];
      if (!layout.value("overlap", Json::object()).value("tp", false)) continue; // defaults are left out
      EXPECT_TRUE(layout["sequence_parallel"].get<bool>());
      ++count;
    }
    return count;
  };
  const Json as_always = planned("megatron-core", {});
  EXPECT_EQ(overlapped(as_always), 0);
  EXPECT_EQ(planned("megatron-core", {"--overlap-tp", "no"})["space"], as_always["space"]);
  const Json both = planned("megatron-core", {"--overlap-tp", "both"});
  EXPECT_GT(overlapped(both), 0);
  EXPECT_GT(both["space"]["enumerated"], as_always["space"]["enumerated"]);
  EXPECT_EQ(overlapped(planned("megatron-core", {"--overlap-tp", "yes"})), overlapped(both));
  const Json refused = planned("foretrain", {"--overlap-tp", "yes"}); // what is left has no tensor parallelism
  EXPECT_EQ(overlapped(refused), 0);
  EXPECT_GT(refused["space"]["rejected"]["tensor-overlap"], 0);
  EXPECT_FALSE(planned("foretrain", {"--overlap-tp", "both"})["space"]["rejected"].contains("tensor-overlap"));
}

TEST(PlanCommand, TheColumnsOfPartsAddUpToTheStep) {
  const std::string csv = foretrain(small_plan({"--csv"})).out;
  const auto cells = [&csv](std::size_t from) {
    std::vector<std::string> list(1);
    for (std::size_t i = from; i < csv.size() && csv[i] != '\n'; ++i)
      if (csv[i] == ',')
        list.emplace_back();
      else
        list.back() += csv[i];
    return list;
  };
  const std::vector<std::string> head = cells(0);
  const std::vector<std::string> best = cells(csv.find('\n') + 1);
  ASSERT_EQ(head.size(), best.size());
  double step = 0, parts = 0;
  for (std::size_t i = 0; i < head.size(); ++i)
    if (head[i] == "step_time_s")
      step = std::stod(best[i]);
    else if (head[i].ends_with("_s"))
      parts += std::stod(best[i]);
  ASSERT_GT(step, 0);
  EXPECT_NEAR(parts / step, 1, 1e-9); // sums of doubles
}

TEST(PlanCommand, TablesFitEightyColumns) {
  const Outcome outcome = foretrain(small_plan());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::size_t start = 0;
  while (start < outcome.out.size()) {
    const std::size_t end = outcome.out.find('\n', start);
    const std::string line = outcome.out.substr(start, end - start);
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(columns, 80) << line;
    start = end + 1;
  }
}

TEST(PlanCommand, NothingThatFitsIsExitCodeTwo) {
  const Outcome outcome = foretrain({"plan", "--model", "llama3-405b", "--cluster", "dgx-h100", "--gpus", "2",
                                     "--seq-len", "8192", "--global-batch", "2", "--engine", "slots", "--json"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["ranked"].size(), 0U);
  EXPECT_GT(json["space"]["enumerated"].get<int>(), 0);
}

TEST(PlanCommand, KeepsTheStudyInADatabase) {
  const Folder folder;
  const std::string file = folder / "studies.db";
  const Outcome planned = foretrain(small_plan({"--db", file, "--json"}));
  ASSERT_EQ(planned.code, 0) << planned.err;
  const Json list = foretrain({"db", "list", file, "--json"}).json();
  ASSERT_EQ(list["studies"].size(), 1U);
  EXPECT_EQ(list["studies"][0]["complete"], true);
  EXPECT_EQ(list["studies"][0]["space"]["evaluated"], planned.json()["space"]["evaluated"]);
  const Json best = foretrain({"db", "best", file, "--top", "1", "--json"}).json();
  EXPECT_EQ(best["ranked"][0]["plan"], planned.json()["ranked"][0]["plan"]);
  for (const char* action : {"show", "pareto", "misses", "runs"})
    EXPECT_EQ(foretrain({"db", action, file}).code, 0) << action;
  EXPECT_EQ(foretrain({"db", "show", file, "99"}).code, 1);
}

/// The disk is full before the report is kept: said, with what was found still printed, and the file opens afterwards.
TEST(PlanCommand, FullDiskIsAnErrorAndLeavesADatabaseThatOpens) {
  const Folder folder;
  const std::string file = folder / "studies.db";
  ASSERT_EQ(foretrain(small_plan({"--db", file})).code, 0);
  const auto size = std::filesystem::file_size(file);
  const Outcome outcome = foretrain(small_plan({"--db", file}), {.out = {}, .largest_file = size + 8192});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("foretrain: "), std::string::npos);
  const Outcome listed = foretrain({"db", "list", file, "--json"});
  ASSERT_EQ(listed.code, 0) << listed.err;
  EXPECT_GE(listed.json()["studies"].size(), 1U);
}

TEST(PlanCommand, OutputThatCannotBeWrittenIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Outcome outcome = foretrain({"presets", "models"}, {.out = "/dev/full", .largest_file = 0});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("stdout"), std::string::npos) << outcome.err;
}

TEST(PlanCommand, AnInterruptKeepsWhatIsDone) {
  const Folder folder;
  const std::string file = folder / "studies.db";
  Started started({"plan", "--model",        "llama3-70b", "--cluster", "dgx-h100", "--gpus", "512", "--seq-len",
                   "8192", "--global-batch", "2048",       "--engine",  "slots",    "--jobs", "1",   "--keep",
                   "500",  "--db",           file,         "--json"});
  // The study is begun before the search; give the search a moment to find something.
  for (int i = 0; i < 600 && !std::filesystem::exists(file); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  started.interrupt();
  const Outcome outcome = started.end();
  ASSERT_EQ(outcome.code, 130) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["complete"], false);
  EXPECT_GT(json["space"]["enumerated"].get<std::int64_t>(), json["space"]["legal"].get<std::int64_t>());
  const Json list = foretrain({"db", "list", file, "--json"}).json();
  ASSERT_EQ(list["studies"].size(), 1U);
  EXPECT_EQ(list["studies"][0]["complete"], false);
  EXPECT_EQ(list["studies"][0]["space"]["evaluated"], json["space"]["evaluated"]);
}

} // namespace
} // namespace foretrain::test
