#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "executor/checkpoint/checkpoint.h"
#include "tests/executor/folder.h"
#include "tests/executor/process_fixture.h"

/// `foretrain-run` that saves, is killed and goes on: one process per rank.
namespace foretrain {
namespace {

using namespace test;
using namespace std::chrono_literals;

constexpr double kLoss = 1e-12; ///< relative; the same sums in another order, in double

class ResumeTest : public ForetrainRun {
protected:
  /// Losses by step, from the summary.
  [[nodiscard]] std::vector<double> losses_of(const std::string& records) const {
    return summary_of(records)["loss"].get<std::vector<double>>();
  }
  [[nodiscard]] Json summary_of(const std::string& records) const {
    const std::vector<Json> lines = lines_of(records);
    return lines.empty() || !lines.back().contains("summary") ? Json{{"loss", Json::array()}} : lines.back()["summary"];
  }
  int train(const std::string& plan, int steps, const std::string& records, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {at(plan), "--steps", std::to_string(steps), "--ops", "none", "--out", at(records)});
    return run(more);
  }
  void expect_refused(std::vector<std::string> arguments, const std::string& says) const {
    arguments.insert(arguments.begin(), {at("plan.json"), "--steps", "4", "--out", at("refused.json")});
    EXPECT_EQ(run(arguments), 1);
    EXPECT_NE(text_of("err.txt").find(says), std::string::npos) << text_of("err.txt");
  }
  /// Waits until a checkpoint is there.
  [[nodiscard]] bool wait_for_checkpoint(const std::string& folder, int steps) const {
    for (int i = 0; i < 6'000; ++i) {
      if (fs::exists(at(folder) / checkpoint_name(steps))) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
};

TEST_F(ResumeTest, GoesOnUnderTheSameLayoutAndUnderAnother) {
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(train("plan.json", 6, "whole.json", {"--checkpoint", at("c"), "--checkpoint-every", "2"}), 0)
      << text_of("err.txt");
  const std::vector<double> whole = losses_of("whole.json");
  ASSERT_EQ(whole.size(), 6U);
  int told = 0;
  for (const Json& line : lines_of("whole.json"))
    if (line.contains("checkpoint")) {
      ++told;
      EXPECT_GT(line["checkpoint"]["bytes"].get<std::int64_t>(), 0);
      EXPECT_GE(line["checkpoint"]["stall_s"].get<double>(), line["checkpoint"]["write_s"].get<double>());
    }
  EXPECT_EQ(told, 3 * 2) << "three checkpoints of two ranks";

  const std::string middle = at("c") / checkpoint_name(2);
  ASSERT_EQ(train("plan.json", 6, "same.json", {"--resume", middle}), 0) << text_of("err.txt");
  const Json same = summary_of("same.json");
  EXPECT_EQ(same["first_step"], 2);
  EXPECT_EQ(same["steps"], 4);
  EXPECT_EQ(same["loss"].get<std::vector<double>>(), std::vector<double>(whole.begin() + 2, whole.end()));

  write("plan.json", plan_text(R"("dp_shard": 2)"));
  ASSERT_EQ(train("plan.json", 6, "other.json", {"--resume", middle}), 0) << text_of("err.txt");
  const std::vector<double> other = losses_of("other.json");
  ASSERT_EQ(other.size(), 4U);
  for (std::size_t i = 0; i < other.size(); ++i) EXPECT_NEAR(other[i] / whole[i + 2], 1, kLoss);
}

TEST_F(ResumeTest, RefusesWhatMakesNoSenseBeforeAnythingStarts) {
  write("plan.json", plan_text(R"("tp": 1)"));
  ASSERT_EQ(train("plan.json", 4, "a.json", {"--checkpoint", at("c")}), 0) << text_of("err.txt");
  expect_refused({"--resume", at("nowhere")}, "nowhere");
  expect_refused({"--resume", at("c")}, "4 steps are done");
  expect_refused({"--resume", at("c"), "--seed", "2"}, "seed 1, the plan has 2");
  expect_refused({"--checkpoint", at("c")}, "the checkpoints of another run");
  expect_refused({"--checkpoint-every", "2"}, "--checkpoint");
  expect_refused({"--max-restarts", "2"}, "--checkpoint");
  expect_refused({"--weights", at("nowhere")}, "nowhere");
  expect_refused({"--tokens", at("nowhere")}, "nowhere");
  write("odd.bin", "123");
  expect_refused({"--tokens", at("odd.bin")}, "no whole number of tokens");
  std::string pairs;
  for (int i = 0; i < 100; ++i) pairs += std::string{static_cast<char>(i), 0};
  write_file(at("far.bin"), pairs); // up to 99, of a vocabulary of 51
  expect_refused({"--tokens", at("far.bin")}, "the vocabulary has 51");
}

TEST_F(ResumeTest, ExportsAndStartsFromWeights) {
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(train("plan.json", 2, "a.json", {"--checkpoint", at("c")}), 0) << text_of("err.txt");
  ASSERT_EQ(run({"--resume", at("c"), "--export", at("hf")}), 0) << text_of("err.txt");
  EXPECT_TRUE(fs::exists(at("hf") / "model.safetensors"));
  write("plan.json", plan_text(R"("pp": 2)"));
  ASSERT_EQ(train("plan.json", 1, "b.json", {"--weights", at("hf")}), 0) << text_of("err.txt");
  write("plan.json", plan_text(R"("tp": 1)"));
  ASSERT_EQ(train("plan.json", 1, "c.json", {"--weights", at("hf")}), 0) << text_of("err.txt");
  ASSERT_EQ(train("plan.json", 1, "d.json"), 0) << text_of("err.txt");
  EXPECT_NEAR(losses_of("b.json").at(0) / losses_of("c.json").at(0), 1, kLoss);
  EXPECT_LT(losses_of("c.json").at(0), losses_of("d.json").at(0)) << "two steps of training have helped";
}

TEST_F(ResumeTest, TokensOfAFileAreTheSameInEveryLayoutAndAfterACheckpoint) {
  std::string pairs;
  for (int i = 0; i < 8 * 4 * 3 + 1; ++i) pairs += std::string{static_cast<char>(i * i % 51), 0}; // three batches
  write_file(at("t.bin"), pairs);
  write("plan.json", plan_text(R"("tp": 2)"));
  const std::vector<std::string> tokens = {"--tokens", at("t.bin")};
  ASSERT_EQ(
      train("plan.json", 4, "a.json", {"--tokens", at("t.bin"), "--checkpoint", at("c"), "--checkpoint-every", "3"}), 0)
      << text_of("err.txt");
  write("plan.json", plan_text(R"("dp_shard": 2)"));
  ASSERT_EQ(train("plan.json", 4, "b.json", tokens), 0) << text_of("err.txt");
  const std::vector<double> a = losses_of("a.json");
  const std::vector<double> b = losses_of("b.json");
  ASSERT_EQ(a.size(), 4U);
  ASSERT_EQ(b.size(), 4U);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i] / a[i], 1, kLoss);
  const std::string middle = at("c") / checkpoint_name(3);
  ASSERT_EQ(train("plan.json", 4, "c.json", {"--tokens", at("t.bin"), "--resume", middle}), 0) << text_of("err.txt");
  EXPECT_NEAR(losses_of("c.json").at(0) / a[3], 1, kLoss);
  expect_refused({"--resume", middle}, "tokens"); // a checkpoint of other data
}

TEST_F(ResumeTest, AFullDiskEndsTheRunAndKeepsTheCheckpointBefore) {
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(train("plan.json", 2, "a.json", {"--checkpoint", at("c")}), 0) << text_of("err.txt");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{20'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0); // of the ranks, which are started now
  const int code = train("plan.json", 4, "b.json", {"--resume", at("c"), "--checkpoint", at("c")});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(code, 1);
  EXPECT_NE(text_of("err.txt").find("checkpoint after step 4"), std::string::npos) << text_of("err.txt");
  EXPECT_NE(text_of("err.txt").find("File too large"), std::string::npos) << text_of("err.txt");
  EXPECT_EQ(*newest_checkpoint(at("c")), at("c") / checkpoint_name(2));
  ASSERT_EQ(train("plan.json", 4, "c.json", {"--resume", at("c"), "--checkpoint", at("c")}), 0) << text_of("err.txt");
}

/// Whenever it dies, what it had saved is whole.
TEST_F(ResumeTest, AKillAtAnyMomentOfSavingLosesNothingSavedBefore) {
  constexpr int kSteps = 150;
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(train("plan.json", kSteps, "whole.json"), 0) << text_of("err.txt");
  const std::vector<double> whole = losses_of("whole.json");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 2; ++round) { // in the foreground, in the background
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    fs::remove_all(at("c"));
    std::vector<std::string> saving = {
        at("plan.json"), "--steps", std::to_string(kSteps), "--ops", "none", "--out", at("a.json"),
        "--checkpoint",  at("c"),   "--checkpoint-every",   "1"};
    if (round % 2 == 1) saving.emplace_back("--checkpoint-background");
    const pid_t launcher = start(saving);
    ASSERT_TRUE(wait_for_checkpoint("c", 1)) << text_of("err.txt");
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    const std::vector<pid_t> ranks = children_of(launcher);
    if (!ranks.empty()) kill(ranks[random() % ranks.size()], SIGKILL);
    (void)wait_for(launcher);
    const auto newest = newest_checkpoint(at("c"));
    ASSERT_TRUE(newest);
    const auto checkpoint = read_checkpoint(*newest);
    ASSERT_TRUE(checkpoint) << to_string(checkpoint.error());
    const int done = checkpoint->state.steps;
    if (done > kSteps - 2) continue; // it was too quick for the kill
    ASSERT_EQ(train("plan.json", done + 2, "b.json", {"--resume", at("c"), "--checkpoint", at("c")}), 0)
        << text_of("err.txt");
    const std::vector<double> resumed = losses_of("b.json");
    EXPECT_EQ(resumed, std::vector<double>(whole.begin() + done, whole.begin() + done + 2));
  }
}

TEST_F(ResumeTest, RestartsAfterLostRanksAndGetsTheSameLosses) {
  constexpr int kSteps = 100;
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(train("plan.json", kSteps, "whole.json"), 0) << text_of("err.txt");
  const pid_t launcher =
      start({at("plan.json"), "--steps", std::to_string(kSteps), "--ops", "none", "--out", at("run.json"),
             "--checkpoint", at("c"), "--checkpoint-every", "15", "--max-restarts", "2", "--timeout", "20"});
  for (const int steps : {15, 45}) {
    ASSERT_TRUE(wait_for_checkpoint("c", steps)) << text_of("err.txt");
    std::vector<pid_t> ranks = children_of(launcher);
    ASSERT_EQ(ranks.size(), 2U) << text_of("err.txt");
    kill(ranks[steps == 15 ? 0 : 1], steps == 15 ? SIGKILL : SIGSEGV);
  }
  EXPECT_EQ(wait_for(launcher), 0) << text_of("err.txt");
  const Json summary = summary_of("run.json");
  EXPECT_EQ(summary["restarts"], 2) << text_of("err.txt");
  EXPECT_EQ(summary["steps"], kSteps);
  EXPECT_FALSE(summary.contains("failure")) << summary;
  EXPECT_EQ(losses_of("run.json"), losses_of("whole.json"));
  EXPECT_NE(text_of("err.txt").find("restart 2 of 2"), std::string::npos) << text_of("err.txt");
}

/// Ranks as torchrun starts them: all again when one was lost, with one more in their count.
class TorchrunTest : public ResumeTest {
protected:
  void SetUp() override {
    ResumeTest::SetUp();
    set("WORLD_SIZE", "2");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(20'000 + getpid() % 10'000));
  }
  void TearDown() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
    ResumeTest::TearDown();
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  [[nodiscard]] std::vector<pid_t> start_ranks(int steps, int most) {
    std::vector<pid_t> ranks;
    for (const char* rank : {"0", "1"}) {
      set("RANK", rank);
      ranks.push_back(start({at("plan.json"), "--launcher", "env", "--steps", std::to_string(steps), "--ops", "none",
                             "--out", at("run.json"), "--checkpoint", at("c"), "--checkpoint-every", "10",
                             "--max-restarts", std::to_string(most), "--timeout", "20"}));
    }
    return ranks;
  }
  /// Of both ranks: each says it in its own words.
  void expect_refused(int most, const std::string& says) {
    for (const pid_t rank : start_ranks(4, most)) EXPECT_EQ(wait_for(rank), 1);
    EXPECT_NE(text_of("err.txt").find(says), std::string::npos) << text_of("err.txt");
  }

private:
  std::vector<std::string> names_;
};

TEST_F(TorchrunTest, GoesOnFromTheNewestCheckpointWhenRanksAreStartedAgain) {
  constexpr int kSteps = 60;
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(train("plan.json", kSteps, "whole.json"), 0) << text_of("err.txt");
  set("TORCHELASTIC_MAX_RESTARTS", "2");
  set("TORCHELASTIC_RESTART_COUNT", "0");
  std::vector<pid_t> ranks = start_ranks(kSteps, 2);
  ASSERT_TRUE(wait_for_checkpoint("c", 10)) << text_of("err.txt");
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(wait_for(ranks[1]), 128 + SIGKILL);
  EXPECT_EQ(wait_for(ranks[0]), 1) << "it notices, and ends";
  const auto newest = newest_checkpoint(at("c"));
  ASSERT_TRUE(newest);
  set("TORCHELASTIC_RESTART_COUNT", "1");
  for (const pid_t rank : start_ranks(kSteps, 2)) EXPECT_EQ(wait_for(rank), 0) << text_of("err.txt");

  std::vector<double> losses; // of what was done again, the later ones
  int from = -1;
  for (const Json& line : lines_of("run.json")) {
    if (line.contains("restart")) {
      from = line["restart"]["step"].get<int>();
      losses.resize(static_cast<std::size_t>(from));
    }
    if (!line.contains("loss")) continue;
    const auto step = line["step"].get<std::size_t>();
    if (losses.size() <= step) losses.resize(step + 1);
    losses[step] += line["loss"].get<double>();
  }
  EXPECT_EQ(newest->filename(), checkpoint_name(from));
  EXPECT_EQ(losses, losses_of("whole.json"));
}

TEST_F(TorchrunTest, RefusesRestartsThatNobodyMakes) {
  write("plan.json", plan_text(R"("tp": 2)"));
  expect_refused(2, "nobody here starts lost ranks again"); // mpirun's ranks
  set("TORCHELASTIC_MAX_RESTARTS", "0");
  set("TORCHELASTIC_RESTART_COUNT", "0");
  expect_refused(2, "torchrun --max-restarts=2");
  set("TORCHELASTIC_MAX_RESTARTS", "9");
  set("TORCHELASTIC_RESTART_COUNT", "3");
  expect_refused(2, "restart 3 of 2");
  set("FORETRAIN_RESTART", "x");
  expect_refused(2, "FORETRAIN_RESTART");
}

TEST_F(ResumeTest, GivesUpWhenAllRestartsAreUsed) {
  write("plan.json", plan_text(R"("tp": 2)"));
  std::string pairs;
  for (int i = 0; i < 8 * 4 * 2 + 1; ++i) pairs += std::string{static_cast<char>(i < 40 ? 3 : 60), 0};
  write_file(at("t.bin"), pairs); // the second batch has a token that is none
  EXPECT_EQ(train("plan.json", 4, "run.json",
                  {"--tokens", at("t.bin"), "--checkpoint", at("c"), "--checkpoint-every", "1", "--max-restarts", "1"}),
            1);
  const Json summary = summary_of("run.json");
  EXPECT_EQ(summary["restarts"], 1);
  EXPECT_TRUE(summary.contains("failure")) << summary;
  EXPECT_NE(text_of("err.txt").find("token 60 at place 40"), std::string::npos) << text_of("err.txt");
}

} // namespace
} // namespace foretrain
