#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "core/program/lower.h"
#include "core/spec/io.h"
#include "executor/communicators/device_library.h"
#include "executor/record.h"
#include "tests/executor/process_fixture.h"
#include "tests/support/places.h"

/// `foretrain-run` as a user starts it: one process per rank.
namespace foretrain {
namespace {

using namespace test;

constexpr int kSteps = 3;
constexpr double kLoss = 1e-12; ///< relative; the same sums in another order, in double

TEST_F(ForetrainRun, LossesAndOpsOfSplitRunsAreThoseOfTheirPrograms) {
  const DataFolder data{test::source_folder() / "data"};
  std::vector<double> expected;
  for (const std::string layout :
       {R"("tp": 1)", R"("tp": 2)", R"("tp": 2, "sequence_parallel": true)", R"("pp": 2)", R"("dp_shard": 2)"}) {
    write("plan.json", plan_text(layout));
    ASSERT_EQ(run({at("plan.json"), "--steps", std::to_string(kSteps), "--out", at("run.json")}), 0)
        << text_of("err.txt");
    const std::vector<Json> lines = lines_of("run.json");
    const auto plan = plan_from(lines.at(0)["plan"], "run.json", data);
    ASSERT_TRUE(plan) << to_string(plan.error());
    const Program program = lower(*plan, *data.semantics("foretrain"));
    const int world = program.mesh.world();
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(1 + world * (kSteps + 1) + 1)) << layout;

    const auto losses = lines.back()["summary"]["loss"].get<std::vector<double>>();
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
    if (expected.empty()) expected = losses;
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i] / expected[i], 1, kLoss) << layout;

    int ranks_with_ops = 0;
    for (const Json& line : lines) {
      if (!line.contains("ops")) continue;
      ++ranks_with_ops;
      const Role& role =
          program.roles[static_cast<std::size_t>(program.mesh.coordinate(line["rank"].get<int>(), Axis::pp))];
      const std::vector<OpPlace> places = places_of(program, role);
      ASSERT_EQ(line["ops"].size(), places.size());
      for (std::size_t i = 0; i < places.size(); ++i)
        EXPECT_EQ(line["ops"][i]["op"].get<std::string>(), places[i].name);
      EXPECT_GT(line["peak_allocated_bytes"].get<std::int64_t>(), 0);
    }
    EXPECT_EQ(ranks_with_ops, world);
  }
}

TEST_F(ForetrainRun, PrintsItsSummaryAsOneDocument) {
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(run({at("plan.json"), "--steps", "2", "--out", at("run.json"), "--json"}), 0) << text_of("err.txt");
  const auto summary = parse_json(text_of("out.txt"), "out.txt");
  ASSERT_TRUE(summary) << to_string(summary.error());
  EXPECT_EQ((*summary)["steps"], 2);
  EXPECT_GT((*summary)["step_time_s"].get<double>(), 0);
  EXPECT_EQ((*summary)["memory"].size(), 2U);
  EXPECT_NE(text_of("err.txt").find("step    1"), std::string::npos);
}

TEST_F(ForetrainRun, RanksFindEachOtherThroughTheEnvironment) {
  write("plan.json", plan_text(R"("pp": 2)"));
  const std::string port = std::to_string(20'000 + getpid() % 10'000);
  std::vector<pid_t> ranks;
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
  for (const char* rank : {"0", "1"}) {
    setenv("RANK", rank, 1);
    ranks.push_back(start({at("plan.json"), "--launcher", "env", "--steps", "2", "--out", at("run.json")}));
  }
  for (const pid_t rank : ranks) EXPECT_EQ(wait_for(rank), 0) << text_of("err.txt");
  EXPECT_EQ(lines_of("run.json").size(), 1U + 2 * (2 + 1)); // a header, two steps and the times of the ops per rank
}

TEST_F(ForetrainRun, SaysWhatIsWrongWithTheEnvironment) {
  write("plan.json", plan_text(R"("pp": 2)"));
  const auto says = [this](const std::map<std::string, std::string>& variables, const std::string& text) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "FORETRAIN_TOKEN"}) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    EXPECT_EQ(run({at("plan.json"), "--launcher", "env", "--timeout", "1", "--out", at("run.json")}), 1);
    EXPECT_NE(text_of("err.txt").find(text), std::string::npos) << text_of("err.txt");
  };
  says({}, "RANK: is not set");
  says({{"RANK", "0"}, {"WORLD_SIZE", "3"}}, "3 processes for a plan of 2 ranks");
  says({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "'2' is not a number from 0 to 1");
  says({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR: is not set");
  const std::map<std::string, std::string> whole = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  says(whole, "rank 0 cannot be reached"); // nobody listens
  std::map<std::string, std::string> alone = whole;
  alone["RANK"] = "0";
  alone["MASTER_PORT"] = std::to_string(30'000 + getpid() % 10'000);
  says(alone, "waits for rank 1");
  alone["MASTER_ADDR"] = "192.0.2.1"; // reserved for documentation: nobody has it
  says(alone, "not an address of this machine");
}

TEST_F(ForetrainRun, ADeadRankEndsTheOthersAndIsNamed) {
  write("plan.json", plan_text(R"("tp": 2)"));
  const pid_t launcher = start({at("plan.json"), "--steps", "1000000", "--ops", "none", "--out", at("run.json")});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60 * test::slowness());
  while (text_of("out.txt").find("step    0") == std::string::npos && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::vector<pid_t> ranks = children_of(launcher);
  ASSERT_EQ(ranks.size(), 2U) << text_of("err.txt");
  kill(ranks[1], SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for(launcher), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(30 * test::slowness()));
  const std::string errors = text_of("err.txt");
  EXPECT_NE(errors.find("rank 0, step "), std::string::npos) << errors; // the survivor says at which op
  EXPECT_TRUE(errors.find("micro-batch") != std::string::npos || errors.find("end of the step") != std::string::npos)
      << errors;
  EXPECT_NE(errors.find("rank 1: was ended by signal 9"), std::string::npos) << errors;
  EXPECT_FALSE(fs::exists("/proc/" + std::to_string(ranks[0])));
  EXPECT_TRUE(lines_of("run.json").back().contains("summary")); // what was done is kept
}

TEST_F(ForetrainRun, AnInterruptKeepsWhatIsDone) {
  write("plan.json", plan_text(R"("dp_shard": 2)"));
  const pid_t launcher = start({at("plan.json"), "--steps", "1000000", "--ops", "none", "--out", at("run.json")});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60 * test::slowness());
  while (text_of("out.txt").find("step    0") == std::string::npos && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(launcher, SIGINT);
  EXPECT_EQ(wait_for(launcher), 130);
  EXPECT_GE(lines_of("run.json").back()["summary"]["steps"].get<int>(), 1);
}

struct Mistake {
  std::string name;
  std::string plan;
  int code;
  std::string says;
};

/// A file of records that takes no more, as on a full disk: all ranks end, the reason is said, what was written stands.
TEST_F(ForetrainRun, RecordsThatCannotBeWrittenEndTheRun) {
  write("plan.json", plan_text(R"("tp": 2)"));
  std::signal(SIGXFSZ, SIG_IGN); // inherited: writes then fail
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const pid_t launcher = start({at("plan.json"), "--steps", "1000", "--ops", "all", "--out", at("run.json")});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(wait_for(launcher), 1);
  EXPECT_NE(text_of("err.txt").find(at("run.json").string() + ": cannot be written"), std::string::npos)
      << text_of("err.txt");
  const std::string written = text_of("run.json");
  EXPECT_NE(written.find("\"step\":0"), std::string::npos) << written.substr(0, 1000);
}

TEST_F(ForetrainRun, SaysWhatIsWrongBeforeItStarts) {
  const std::vector<Mistake> mistakes = {
      {"not JSON", "{", 1, "not valid JSON"},
      {"empty", "", 1, "plan.json"},
      {"unknown key", plan_text(R"("tpp": 2)"), 1, "tpp"},
      {"not executed", plan_text(R"("cp": 2, "context_parallel": { "kind": "ulysses-ring", "ulysses": 2 })"), 2,
       "Ulysses inside a ring is not executed"},
      {"does not divide", plan_text(R"("tp": 3)"), 2, "tp 3 does not divide heads 4"},
      {"bf16", plan_text(R"("tp": 1)", R"(, "dropout": 0.5)"), 2, "dropout is not executed"},
  };
  for (const Mistake& mistake : mistakes) {
    write("plan.json", mistake.plan);
    EXPECT_EQ(run({at("plan.json"), "--out", at("run.json")}), mistake.code) << mistake.name;
    EXPECT_NE(text_of("err.txt").find(mistake.says), std::string::npos) << mistake.name << ": " << text_of("err.txt");
  }
  write("plan.json", plan_text(R"("tp": 1)"));
  EXPECT_EQ(run({at("missing.json")}), 1);
  EXPECT_EQ(run({at("plan.json"), "--steps", "0"}), 1);
  EXPECT_EQ(run({at("plan.json"), "--out", at("no/such/folder/run.json")}), 1);
  EXPECT_EQ(run({at("plan.json"), "--out", "/dev/full"}), 1);
  EXPECT_NE(text_of("err.txt").find("not a regular file"), std::string::npos) << text_of("err.txt");
}

TEST_F(ForetrainRun, SaysWhatABackendOfDevicesMisses) {
  write("plan.json", plan_text(R"("tp": 2)"));
  EXPECT_EQ(run({at("plan.json"), "--backend", "mpi"}), 1);
  for (const Backend backend : {Backend::nccl, Backend::rccl}) {
    const auto devices = devices_of(backend, test::build_folder() / "bin");
    if (devices) continue; // ctest -L gpu
    const std::string name(id_of(backend));
    EXPECT_EQ(run({at("plan.json"), "--backend", name, "--out", at("run.json")}), 1);
    const std::string errors = text_of("err.txt");
    EXPECT_NE(errors.find("--backend " + name), std::string::npos) << errors;
    EXPECT_NE(errors.find(devices.error().message), std::string::npos) << errors;
    EXPECT_FALSE(fs::exists(at("run.json"))) << "nothing is started";
  }
}

} // namespace
} // namespace foretrain
