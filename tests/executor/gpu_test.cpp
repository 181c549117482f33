#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "executor/communicators/device_library.h"
#include "tests/executor/matrix.h"
#include "tests/executor/process_fixture.h"
#include "tests/support/places.h"

/// What needs a GPU (ctest -L gpu): skipped, with the reason, where there is none. Two to four ranks share what there
/// is.
namespace foretrain {
namespace {

using namespace test;

constexpr int kRunSteps = 5;
constexpr int kMostRanks = 4;   ///< that share a GPU
constexpr double kLoss = 1e-12; ///< relative; the same sums in another order, in double

/// The backend of this machine's GPUs.
Result<Backend> backend_here() {
  const fs::path programs = test::build_folder() / "bin";
  const auto nccl = devices_of(Backend::nccl, programs);
  if (nccl) return Backend::nccl;
  if (devices_of(Backend::rccl, programs)) return Backend::rccl;
  return tl::unexpected<Error>(nccl.error());
}

class OnGpus : public ForetrainRun {
protected:
  void SetUp() override {
    ForetrainRun::SetUp();
    const auto backend = backend_here();
    if (!backend) GTEST_SKIP() << to_string(backend.error());
    backend_ = std::string(id_of(*backend));
  }
  [[nodiscard]] std::vector<double> losses(const std::string& backend) const {
    EXPECT_EQ(
        run({at("plan.json"), "--steps", std::to_string(kRunSteps), "--backend", backend, "--out", at("run.json")}), 0)
        << text_of("err.txt");
    const std::vector<Json> lines = lines_of("run.json");
    EXPECT_EQ(lines.at(0)["backend"].get<std::string>(), backend);
    return lines.back()["summary"]["loss"].get<std::vector<double>>();
  }
  std::string backend_;
};

TEST_F(OnGpus, LossesOfEveryAxisAreThoseOfGloo) {
  for (const std::string layout :
       {R"("tp": 2)", R"("tp": 2, "sequence_parallel": true)", R"("pp": 2)",
        R"("pp": 2, "schedule": { "kind": "interleaved", "chunks": 2 })", R"("pp": 2, "schedule": { "kind": "zb-h1" })",
        R"("dp_shard": 2)", R"("cp": 2)", R"("cp": 2, "context_parallel": { "kind": "ulysses" })",
        R"("tp": 2, "pp": 2)", R"("pp": 2, "dp_shard": 2)"}) {
    write("plan.json", plan_text(layout));
    const std::vector<double> expected = losses("gloo");
    const std::vector<double> got = losses(backend_);
    ASSERT_EQ(got.size(), expected.size()) << layout;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / expected[i], 1, kLoss) << layout;
  }
}

/// Every pair of options that up to four ranks can run (matrix.h), as processes.
TEST_F(OnGpus, LossesOfTheMatrixAreThoseOfGloo) {
  int plans = 0;
  for (const executor_fixtures::Row& row : executor_fixtures::covering_array(2).rows) {
    const Plan plan = executor_fixtures::plan_of(row);
    if (plan.layout.world() > kMostRanks) continue;
    ++plans;
    const std::string name = executor_fixtures::name_of(row);
    SCOPED_TRACE(name);
    write("plan.json", to_json(plan).dump());
    const std::vector<double> expected = losses("gloo");
    const std::vector<double> got = losses(backend_);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / expected[i], 1, kLoss);
  }
  EXPECT_GT(plans, 20);
}

/// What is moved has a copy on the device, and receive buffers are the device's.
TEST_F(OnGpus, RanksHoldNoMoreOnTheHostThanWithGloo) {
  for (const std::string layout : {R"("tp": 1)", R"("tp": 2, "sequence_parallel": true)", R"("dp_shard": 2)"}) {
    write("plan.json", plan_text(layout));
    (void)losses(backend_);
    const Json got = lines_of("run.json").back()["summary"]["memory"];
    (void)losses("gloo");
    const Json expected = lines_of("run.json").back()["summary"]["memory"];
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t rank = 0; rank < got.size(); ++rank)
      EXPECT_LE(got[rank]["peak_allocated_bytes"].get<std::int64_t>(),
                expected[rank]["peak_allocated_bytes"].get<std::int64_t>())
          << layout;
  }
}

TEST_F(OnGpus, TwoRunsGiveTheSameBits) {
  write("plan.json", plan_text(R"("tp": 2, "sequence_parallel": true)"));
  const std::vector<double> first = losses(backend_);
  EXPECT_EQ(losses(backend_), first);
}

/// A rank that dies and one that is stopped: the other ends, and says so.
TEST_F(OnGpus, ALostRankEndsTheOthers) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    write("plan.json", plan_text(R"("tp": 2)"));
    const pid_t launcher = start({at("plan.json"), "--steps", "1000000", "--ops", "none", "--timeout", "10",
                                  "--backend", backend_, "--out", at("run.json")});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (text_of("out.txt").find("step    0") == std::string::npos && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::vector<pid_t> ranks = children_of(launcher);
    ASSERT_EQ(ranks.size(), 2U) << text_of("err.txt");
    kill(ranks[1], signal);
    EXPECT_EQ(wait_for(launcher), 1);
    EXPECT_NE(text_of("err.txt").find("rank 0, step "), std::string::npos) << text_of("err.txt");
    for (const pid_t rank : ranks) EXPECT_FALSE(fs::exists("/proc/" + std::to_string(rank)));
  }
}

/// Figures of collectives over sizes, for foretrain calibrate.
TEST_F(OnGpus, ProbesOfCollectivesRun) {
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(run({at("plan.json"), "--probe", "--backend", backend_, "--out", at("run.json")}), 0) << text_of("err.txt");
  int probes = 0;
  for (const Json& line : lines_of("run.json"))
    if (line.contains("probe")) {
      ++probes;
      EXPECT_GT(line["seconds"].get<double>(), 0);
    }
  EXPECT_GT(probes, 0);
}

} // namespace
} // namespace foretrain
