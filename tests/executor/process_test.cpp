#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/program/lower.h"
#include "core/spec/io.h"
#include "executor/record.h"

/// `foretrain-run` as a user starts it: one process per rank.
namespace foretrain {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 3;
constexpr double kLoss = 1e-12; ///< relative; the same sums in another order, in double

std::string plan_text(const std::string& layout, const std::string& job = "") {
  return R"({"model": {"name": "tiny", "layers": 4, "hidden": 16, "heads": 4, "kv_heads": 2, "head_dim": 4, "ffn": 24,
      "vocab": 51}, "cluster": {"preset": "dgx-h100", "devices": 8},
      "job": {"sequence_length": 8, "global_batch": 4, "precision": "fp64", "semantics": "foretrain")" +
         job + R"(}, "layout": {"sharding": "none", "micro_batch": 1, )" + layout + "}}";
}

class ForetrainRun : public testing::Test {
protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "foretrain-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream in(at(name));
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  /// Starts it with its output in the files out.txt and err.txt.
  pid_t start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), FORETRAIN_BINARY_DIR "/bin/foretrain-run");
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, 1, at("out.txt").c_str(), flags, 0644);
    posix_spawn_file_actions_addopen(&files, 2, at("err.txt").c_str(), flags, 0644);
    pid_t process = -1;
    EXPECT_EQ(posix_spawn(&process, words[0], &files, nullptr, words.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    return process;
  }
  static int wait_for(pid_t process) {
    int status = 0;
    waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int run(std::vector<std::string> arguments) const { return wait_for(start(std::move(arguments))); }

  /// Lines of a run's file.
  [[nodiscard]] std::vector<Json> lines_of(const std::string& name) const {
    std::vector<Json> lines;
    std::ifstream in(at(name));
    for (std::string line; std::getline(in, line);) {
      auto json = parse_json(line, name);
      EXPECT_TRUE(json) << to_string(json.error());
      if (json) lines.push_back(std::move(*json));
    }
    return lines;
  }

  fs::path folder_;
};

/// Ranks that the launcher has started, in the order of their start.
std::vector<pid_t> children_of(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream in("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; in >> child;) children.push_back(child);
  return children;
}

TEST_F(ForetrainRun, LossesAndOpsOfSplitRunsAreThoseOfTheirPrograms) {
  const DataFolder data{fs::path(FORETRAIN_SOURCE_DIR) / "data"};
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
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(1 + world * kSteps + 1)) << layout;

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
  EXPECT_EQ(lines_of("run.json").size(), 1U + 2 * 2);
}

TEST_F(ForetrainRun, ADeadRankEndsTheOthersAndIsNamed) {
  write("plan.json", plan_text(R"("tp": 2)"));
  const pid_t launcher = start({at("plan.json"), "--steps", "1000000", "--ops", "none", "--out", at("run.json")});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (text_of("out.txt").find("step    0") == std::string::npos && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::vector<pid_t> ranks = children_of(launcher);
  ASSERT_EQ(ranks.size(), 2U) << text_of("err.txt");
  kill(ranks[1], SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for(launcher), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(30));
  const std::string errors = text_of("err.txt");
  EXPECT_NE(errors.find("rank 0, step "), std::string::npos) << errors; // the survivor says at which op
  EXPECT_NE(errors.find("micro-batch"), std::string::npos) << errors;
  EXPECT_NE(errors.find("rank 1: was ended by signal 9"), std::string::npos) << errors;
  EXPECT_FALSE(fs::exists("/proc/" + std::to_string(ranks[0])));
  EXPECT_TRUE(lines_of("run.json").back().contains("summary")); // what was done is kept
}

TEST_F(ForetrainRun, AnInterruptKeepsWhatIsDone) {
  write("plan.json", plan_text(R"("dp_shard": 2)"));
  const pid_t launcher = start({at("plan.json"), "--steps", "1000000", "--ops", "none", "--out", at("run.json")});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
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

TEST_F(ForetrainRun, SaysWhatIsWrongBeforeItStarts) {
  const std::vector<Mistake> mistakes = {
      {"not JSON", "{", 1, "not valid JSON"},
      {"empty", "", 1, "plan.json"},
      {"unknown key", plan_text(R"("tpp": 2)"), 1, "tpp"},
      {"not executed", plan_text(R"("cp": 2)"), 2, "context parallelism (cp 2) is not executed"},
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

} // namespace
} // namespace foretrain
