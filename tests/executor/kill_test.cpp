#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

#include "tests/executor/process_fixture.h"

/// Runs that lose a random rank at a random moment in a random way. FORETRAIN_KILLS says how many (ctest: a few).
namespace foretrain {
namespace {

using namespace test;
using namespace std::chrono_literals;

constexpr int kTimeout = 10;                    ///< of a transfer, seconds: ranks also need to start within it
constexpr auto kEnd = 1s * kTimeout + 3s + 12s; ///< timeout, grace of the launcher, and a machine that others use
constexpr std::array<const char*, 4> kLayouts = {R"("tp": 2)", R"("pp": 2)", R"("dp_shard": 2)", R"("tp": 2, "pp": 2)"};
constexpr std::array<int, 4> kWorlds = {2, 2, 2, 4};
constexpr std::array<int, 4> kWays = {SIGKILL, SIGSTOP, SIGSEGV, SIGTERM};

int kills() {
  const char* text = std::getenv("FORETRAIN_KILLS");
  return text ? std::max(1, std::atoi(text)) : 4;
}

/// Exit code, or −1 when it still runs after this long (it is ended then).
int wait_at_most(pid_t process, std::chrono::steady_clock::duration time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(10ms);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool alive(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/cmdline");
  std::string words;
  std::getline(in, words);
  return words.find("foretrain-rank") != std::string::npos || words.find("foretrain-run") != std::string::npos;
}

class KillTest : public ForetrainRun {
protected:
  /// Ranks once all are there.
  static std::vector<pid_t> ranks_of(pid_t launcher, int world) {
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (std::chrono::steady_clock::now() < deadline) {
      std::vector<pid_t> ranks = children_of(launcher);
      if (ranks.size() == static_cast<std::size_t>(world)) return ranks;
      std::this_thread::sleep_for(5ms);
    }
    return {};
  }

  /// Every rank but the lost one says where it was, in its own words once all had met; before that (a rank may still be
  /// loading its libraries when another is lost) the launcher may speak for it.
  void expect_reports(int world, int lost) const {
    std::vector<bool> said(static_cast<std::size_t>(world), false);
    bool met = false; // rank 0 writes the header when all are there
    Json summary;
    for (const Json& line : lines_of("run.json")) {
      met = met || line.contains("format");
      if (line.contains("error") && !(met && line.contains("by"))) {
        const int rank = line["rank"].get<int>();
        const std::string text = line["error"].get<std::string>();
        said[static_cast<std::size_t>(rank)] = true;
        EXPECT_EQ(text.rfind("rank " + std::to_string(rank), 0), 0U) << text;
      }
      if (line.contains("summary")) summary = line["summary"];
    }
    for (int rank = 0; rank < world; ++rank)
      EXPECT_TRUE(rank == lost || said[static_cast<std::size_t>(rank)]) << "rank " << rank << " said nothing";
    ASSERT_TRUE(summary.contains("failure")) << summary;
    const std::string failure = summary["failure"].get<std::string>();
    EXPECT_NE(failure.find("rank " + std::to_string(lost)), std::string::npos) << failure;
  }
};

TEST_F(KillTest, EveryLossEndsCleanly) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < kills(); ++round) {
    const std::size_t which = random() % kLayouts.size();
    const int way = kWays[random() % kWays.size()];
    const auto moment = std::chrono::milliseconds(random() % 2500);
    const int world = kWorlds[which];
    const int lost = static_cast<int>(random() % static_cast<unsigned>(world));
    SCOPED_TRACE(std::string(kLayouts[which]) + ", rank " + std::to_string(lost) + " gets signal " +
                 std::to_string(way) + " after " + std::to_string(moment.count()) + " ms, seed " +
                 std::to_string(seed));
    write("plan.json", plan_text(kLayouts[which]));
    const pid_t launcher = start({at("plan.json"), "--steps", "1000000", "--ops", "none", "--timeout",
                                  std::to_string(kTimeout), "--out", at("run.json")});
    const std::vector<pid_t> ranks = ranks_of(launcher, world);
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world)) << text_of("err.txt");
    std::this_thread::sleep_for(moment);
    kill(ranks[static_cast<std::size_t>(lost)], way);
    ASSERT_EQ(wait_at_most(launcher, kEnd), 1) << text_of("err.txt");
    for (const pid_t rank : ranks) EXPECT_FALSE(alive(rank));
    expect_reports(world, lost);
    if (HasFailure()) FAIL() << text_of("err.txt");
  }
}

/// A launcher that is stopped cannot end anybody: its ranks hear nothing from it any more and end by themselves.
TEST_F(KillTest, RanksOfAStoppedLauncherEndByThemselves) {
  write("plan.json", plan_text(kLayouts[0]));
  const pid_t launcher = start({at("plan.json"), "--steps", "1000000", "--ops", "none", "--timeout",
                                std::to_string(kTimeout), "--out", at("run.json")});
  const std::vector<pid_t> ranks = ranks_of(launcher, kWorlds[0]);
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kWorlds[0])) << text_of("err.txt");
  const auto wait_for = [](auto&& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kEnd;
    while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(20ms);
    return condition();
  };
  ASSERT_TRUE(wait_for([&] { return text_of("out.txt").find("step    1") != std::string::npos; }))
      << text_of("err.txt");
  kill(launcher, SIGSTOP);
  const bool ended = wait_for([&] { return std::none_of(ranks.begin(), ranks.end(), alive); });
  kill(launcher, SIGCONT);
  EXPECT_EQ(wait_at_most(launcher, kEnd), 1) << text_of("err.txt");
  ASSERT_TRUE(ended);
  bool gone = false;
  for (const Json& line : lines_of("run.json"))
    gone = gone || (line.contains("error") &&
                    line["error"].get<std::string>().find("the rendezvous is gone") != std::string::npos);
  EXPECT_TRUE(gone) << text_of("run.json");
  EXPECT_TRUE(lines_of("run.json").back().contains("summary")) << text_of("run.json");
}

} // namespace
} // namespace foretrain
