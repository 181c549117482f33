#include <cmath>
#include <filesystem>

#include "tests/planner/cli/program.h"

/// `foretrain run` and `compare`, with the executor beside the program.
namespace foretrain::test {
namespace {

std::string tiny_plan(const Folder& folder, const std::string& layout, const std::string& semantics = "foretrain",
                      int devices = 2) {
  return folder.write("plan.json", R"({"model": {"name": "tiny", "layers": 4, "hidden": 16, "heads": 4, "kv_heads": 2,
      "head_dim": 4, "ffn": 24, "vocab": 51}, "cluster": {"preset": "dgx-h100", "devices": )" +
                                       std::to_string(devices) + R"(},
      "job": {"sequence_length": 8, "global_batch": 4, "precision": "fp32", "semantics": ")" +
                                       semantics + R"("}, "layout": {"sharding": "none", )" + layout + "}}");
}

TEST(Run, KeepsWhatWasMeasuredBesideWhatWasPredicted) {
  const Folder folder;
  const std::string plan = tiny_plan(folder, R"("tp": 2)");
  const std::string database = folder / "runs.db";
  const Outcome ran = foretrain({"run", plan, "--launcher", "local", "--steps", "5", "--db", database, "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json run = ran.json();
  EXPECT_EQ(run["steps"], 5);
  EXPECT_EQ(run["status"], "done");
  EXPECT_EQ(run["loss"].size(), 5U);
  EXPECT_GT(run["step_time_s"].get<double>(), 0);
  EXPECT_GT(run["predicted_step_time_s"].get<double>(), 0);
  ASSERT_EQ(run["memory"].size(), 2U);
  EXPECT_GT(run["memory"][1]["peak_allocated_bytes"].get<std::int64_t>(), 0);
  EXPECT_GT(run["memory"][1]["predicted_allocated_bytes"].get<std::int64_t>(), 0);
  EXPECT_GT(run["environment"]["machine"]["cores"].get<int>(), 0);
  const std::string folder_of_run = run["folder"].get<std::string>();
  for (const char* name : {"plan.json", "run.json", "rank-0.log", "rank-1.log"})
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(folder_of_run) / name)) << name;

  const std::string id = std::to_string(run["run"].get<int>());
  const std::string trace = folder / "both.json";
  const Outcome compared = foretrain({"compare", id, "--db", database, "--trace", trace, "--json"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  const Json document = compared.json();
  bool step = false;
  bool op = false;
  bool slot = false;
  for (const Json& row : document["rows"]) {
    for (const char* key : {"item", "rank", "predicted", "measured", "error_percent"}) EXPECT_TRUE(row.contains(key));
    step = step || (row["item"] == "step_time" && row["measured"] == run["step_time_s"]);
    slot = slot || (row["item"] == "peak/forward, micro-batch 0, chunk 0" && row["rank"] == 1 &&
                    row["predicted"].get<double>() > 0 && row["measured"].get<double>() > 0);
    op = op || (row["item"] == "op/forward ffn_up" && row["rank"] == 1 && row["measured"].get<double>() > 0);
  }
  EXPECT_TRUE(step);
  EXPECT_TRUE(op);
  EXPECT_TRUE(slot);
  const auto both = read_json_file(trace);
  ASSERT_TRUE(both);
  const std::string text = both->dump();
  EXPECT_NE(text.find("predicted stage 0"), std::string::npos);
  EXPECT_NE(text.find("measured rank 1"), std::string::npos);

  const Outcome table = foretrain({"compare", id, "--db", database, "--ops"});
  EXPECT_NE(table.out.find("op/forward ffn_up"), std::string::npos) << table.out;
}

TEST(Run, GoesOnFromACheckpoint) {
  const Folder folder;
  const std::string plan = tiny_plan(folder, R"("tp": 2)");
  const std::string database = folder / "runs.db";
  const Outcome first =
      foretrain({"run", plan, "--steps", "2", "--db", database, "--checkpoint", folder / "c", "--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(first.json()["checkpoints"].size(), 1U);
  EXPECT_EQ(first.json()["checkpoints"][0]["steps"], 2);
  EXPECT_GT(first.json()["checkpoints"][0]["bytes"].get<std::int64_t>(), 0);
  const Outcome second =
      foretrain({"run", plan, "--steps", "5", "--warmup", "1", "--db", database, "--resume", folder / "c", "--json"});
  ASSERT_EQ(second.code, 0) << second.err;
  const Json run = second.json();
  EXPECT_EQ(run["first_step"], 2);
  EXPECT_EQ(run["steps"], 3);
  EXPECT_EQ(run["loss"].size(), 3U);
  EXPECT_EQ(run["restarts"], 0);
  EXPECT_GT(run["step_time_s"].get<double>(), 0);
  const Outcome done = foretrain({"run", plan, "--steps", "2", "--db", database, "--resume", folder / "c"});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.err.find("2 steps are done"), std::string::npos) << done.err;
}

/// A plan for processors, large enough that each op takes longer than the clock's step.
std::string host_plan(const Folder& folder) {
  return folder.write("plan.json", R"({"model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "kv_heads": 4,
      "head_dim": 16, "ffn": 128, "vocab": 128}, "cluster": {"preset": "cpu-host", "devices": 2},
      "job": {"sequence_length": 64, "global_batch": 4, "precision": "fp32", "semantics": "foretrain"},
      "layout": {"sharding": "none", "dp_shard": 2}})");
}

TEST(Run, IsImportedOnceFromItsFolder) {
  const Folder folder;
  const std::string here = folder / "here.db";
  ASSERT_EQ(
      foretrain({"run", host_plan(folder), "--steps", "4", "--db", folder / "there.db", "--out", folder / "a run"})
          .code,
      0);
  const Outcome taken = foretrain({"db", "import", here, folder / "a run", "--json"});
  ASSERT_EQ(taken.code, 0) << taken.err;
  const Json run = taken.json()["runs"][0];
  EXPECT_EQ(run["steps"], 4);
  EXPECT_GT(run["step_time_s"].get<double>(), 0);
  EXPECT_GT(run["predicted_step_time_s"].get<double>(), 0);
  const Json listed = foretrain({"db", "runs", here, "--json"}).json()["runs"];
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["status"], "done");
  const Json original = foretrain({"compare", "1", "--db", folder / "there.db", "--json"}).json();
  const Json copy = foretrain({"compare", "1", "--db", here, "--json"}).json();
  EXPECT_EQ(copy["rows"], original["rows"]) << "all that was measured has come along";
  const Outcome again = foretrain({"db", "import", here, folder / "a run/run.json", "--json"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(again.json()["runs"][0]["run"].is_null());
  EXPECT_EQ(foretrain({"db", "runs", here, "--json"}).json()["runs"].size(), 1U);
  const Outcome none = foretrain({"db", "import", here, folder / "nowhere"});
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("run.json"), std::string::npos) << none.err;
}

TEST(Run, TeachesACalibration) {
  const Folder folder;
  const std::string database = folder / "a.db";
  ASSERT_EQ(foretrain({"run", host_plan(folder), "--steps", "6", "--db", database}).code, 0);
  const std::string out = folder / "cal.json";
  const Outcome learnt = foretrain({"calibrate", "--runs", database, "--out", out, "--json"});
  ASSERT_EQ(learnt.code, 0) << learnt.err;
  const Json document = learnt.json();
  ASSERT_EQ(document["runs"].size(), 1U);
  const Json& run = document["runs"][0];
  const double measured = run["measured_step_time_s"].get<double>();
  const auto off = [&](const char* key) { return std::abs(run[key].get<double>() - measured); };
  EXPECT_LT(off("after_s"), off("before_s")) << run.dump();
  const auto kept = read_json_file(out);
  ASSERT_TRUE(kept);
  EXPECT_EQ((*kept)["gemm"]["evidence"], "fitted");
  const Json predicted = foretrain({"predict", folder / "plan.json", "--calibration", out, "--json"}).json();
  EXPECT_NEAR(predicted["step_time_s"].get<double>(), run["after_s"].get<double>(),
              run["after_s"].get<double>() * 1e-9);
  EXPECT_EQ(foretrain({"calibrate", "--runs", database, "--run", "7", "--out", out}).code, 1);
}

TEST(Run, TeachesNothingOfADeviceThatItWasNotMadeOn) {
  const Folder folder;
  const std::string database = folder / "a.db";
  ASSERT_EQ(foretrain({"run", tiny_plan(folder, R"("tp": 2)"), "--steps", "2", "--db", database}).code, 0);
  const Outcome refused = foretrain({"calibrate", "--runs", database, "--out", folder / "cal.json"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("executed by processors"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "cal.json"));
}

TEST(Run, KeepsTheForecastForTheUsersFrameworkToo) {
  const Folder folder;
  const std::string plan = tiny_plan(folder, R"("dp_shard": 2)", "megatron-core");
  const Outcome ran = foretrain({"run", plan, "--steps", "2", "--db", folder / "a.db", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.json()["asked"]["semantics"], "megatron-core");
}

TEST(Run, KeepsAFailedRunAsFailed) {
  const Folder folder;
  const std::string database = folder / "a.db";
  const Outcome bad = foretrain({"run", folder.write("bad.json", "{"), "--db", database});
  EXPECT_EQ(bad.code, 1);
  const Outcome illegal = foretrain({"run", tiny_plan(folder, R"("tp": 3)"), "--db", database});
  EXPECT_EQ(illegal.code, 2);
  EXPECT_EQ(foretrain({"compare", "7", "--db", database}).code, 1); // no run, not even a database
  const Outcome refused =
      foretrain({"run", tiny_plan(folder, R"("tp": 2)", "foretrain", 2), "--db", database, "--out", "/dev/null/x"});
  EXPECT_EQ(refused.code, 1) << refused.out;
  std::filesystem::create_directories(folder / "taken/run.json/by a folder"); // where the records should go
  const Outcome failed =
      foretrain({"run", tiny_plan(folder, R"("tp": 2)"), "--out", folder / "taken", "--db", database, "--json"});
  ASSERT_EQ(failed.code, 1) << failed.out;
  EXPECT_EQ(failed.json()["status"], "failed");
  EXPECT_FALSE(failed.json()["message"].get<std::string>().empty());
  const Json runs = foretrain({"db", "runs", database, "--json"}).json()["runs"];
  EXPECT_EQ(runs[0]["status"], "failed");
}

TEST(Run, PrintsTheBatchScriptThatItWouldSubmit) {
  const Folder folder;
  const std::string plan = tiny_plan(folder, R"("tp": 2, "dp_shard": 2)", "foretrain", 4);
  const Outcome dry = foretrain({"run", plan, "--launcher", "slurm", "--dry-run", "--steps", "7", "--time", "00:10:00",
                                 "--partition", "short", "--sbatch=--account=lab", "--out", folder / "it's here"});
  ASSERT_EQ(dry.code, 0) << dry.err;
  for (const char* line :
       {"#SBATCH --ntasks=4\n", "#SBATCH --time=00:10:00\n", "#SBATCH --partition=short\n", "#SBATCH --account=lab\n",
        "'--steps' '7'", "MASTER_PORT=", "FORETRAIN_TOKEN=", "it'\\''s here"})
    EXPECT_NE(dry.out.find(line), std::string::npos) << line << dry.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "it's here")); // nothing is done
  EXPECT_EQ(foretrain({"run", plan, "--dry-run"}).code, 1);
  EXPECT_EQ(foretrain({"run", plan, "--launcher", "env"}).code, 1); // without --out
}

TEST(Run, DetectsAMachineThatPlansCanName) {
  const Folder folder;
  const Outcome detected = foretrain({"detect", "--ranks", "4", "--out", folder / "here.json"});
  ASSERT_EQ(detected.code, 0) << detected.err;
  const std::string plan =
      folder.write("plan.json", R"({"model": {"name": "tiny", "layers": 2, "hidden": 16, "heads": 4,
      "kv_heads": 4, "head_dim": 4, "ffn": 24, "vocab": 51}, "cluster": "here.json", "job": {"sequence_length": 8,
      "global_batch": 4, "precision": "fp32", "semantics": "foretrain"}, "layout": {"tp": 4, "sharding": "none"}})");
  const Outcome predicted = foretrain({"predict", plan, "--json"});
  EXPECT_LE(predicted.code, 2) << predicted.err;
  EXPECT_GT(predicted.json()["step_time_s"].get<double>(), 0);
}

TEST(Run, AnInterruptKeepsTheStepsThatWereDone) {
  const Folder folder;
  const std::string plan = tiny_plan(folder, R"("pp": 2)");
  const std::string database = folder / "a.db";
  Started run({"run", plan, "--steps", "1000000", "--db", database, "--json"});
  const std::filesystem::path records = std::filesystem::path(folder / "a-runs") / "1" / "run.json";
  for (int i = 0; i < 1000; ++i) {
    std::ifstream in(records);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.find("\"step\":3") != std::string::npos) break;
    ::usleep(30'000);
  }
  run.interrupt();
  const Outcome outcome = run.end();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.json()["status"], "interrupted");
  EXPECT_GE(outcome.json()["steps"].get<int>(), 3);
  const Outcome listed = foretrain({"db", "runs", database, "--json"});
  EXPECT_EQ(listed.json()["runs"][0]["status"], "interrupted");
}

} // namespace
} // namespace foretrain::test
