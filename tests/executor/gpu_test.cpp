#include <cmath>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "executor/checkpoint/checkpoint.h"
#include "executor/communicators/device_library.h"
#include "tests/executor/matrix.h"
#include "tests/executor/process_fixture.h"
#include "tests/support/places.h"

/// What needs a GPU (ctest -L gpu): skipped, with the reason, where there is none. Ranks are processes that compute on
/// it; two to four of them share what there is. The same on the processor with Gloo is what is right.
namespace foretrain {
namespace {

using namespace test;

constexpr int kRunSteps = 5;
constexpr int kMostRanks = 4;      ///< that share a GPU
constexpr double kLoss = 1e-12;    ///< relative; the same sums in another order, in double
constexpr double kTensors = 1e-10; ///< norm-wise, of weights and moments after the last step

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
    fs::remove_all(at(backend));
    EXPECT_EQ(run({at("plan.json"), "--steps", std::to_string(kRunSteps), "--backend", backend, "--checkpoint",
                   at(backend), "--out", at("run.json")}),
              0)
        << text_of("err.txt");
    const std::vector<Json> lines = lines_of("run.json");
    EXPECT_EQ(lines.at(0)["backend"].get<std::string>(), backend);
    EXPECT_EQ(lines.at(0)["computes_on"].get<std::string>() == "host", backend == "gloo");
    return lines.back()["summary"]["loss"].get<std::vector<double>>();
  }
  /// Runs the plan on both; losses, and all that checkpoints have of the ranks, must be equal to rounding.
  void expect_equal_to_gloo() const {
    const std::vector<double> expected = losses("gloo");
    const std::vector<double> got = losses(backend_);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / expected[i], 1, kLoss) << "step " << i;
    const auto right = newest_checkpoint(at("gloo"));
    const auto here = newest_checkpoint(at(backend_));
    ASSERT_TRUE(right && here);
    for (const fs::directory_entry& file : fs::directory_iterator(*right))
      if (file.path().extension() == ".safetensors") expect_equal_files(*here / file.path().filename(), file.path());
  }
  static void expect_equal_files(const fs::path& got, const fs::path& expected) {
    const auto a = safetensors::File::open(got);
    const auto b = safetensors::File::open(expected);
    ASSERT_TRUE(a && b);
    ASSERT_EQ(a->entries().size(), b->entries().size());
    for (const auto& [name, entry] : b->entries()) {
      if (name.find("qkv.bias") != std::string::npos) continue; // gradients that are rounding (equality.cpp)
      ASSERT_EQ(entry.type, "F64");
      const auto values = [&entry](const safetensors::File& file, const safetensors::Entry& there) {
        std::vector<double> list(static_cast<std::size_t>(entry.elements()));
        EXPECT_TRUE(file.read(there, 0, entry.elements(), list.data()));
        return list;
      };
      const std::vector<double> x = values(*a, a->entries().at(name));
      const std::vector<double> y = values(*b, entry);
      double difference = 0;
      double whole = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        difference += (x[i] - y[i]) * (x[i] - y[i]);
        whole += y[i] * y[i];
      }
      EXPECT_LE(std::sqrt(difference), kTensors * std::sqrt(whole)) << name;
    }
  }
  std::string backend_;
};

TEST_F(OnGpus, EveryAxisEqualsGloo) {
  for (const std::string layout :
       {R"("tp": 1)", R"("tp": 2)", R"("tp": 2, "sequence_parallel": true)", R"("pp": 2)",
        R"("pp": 2, "schedule": { "kind": "interleaved", "chunks": 2 })", R"("pp": 2, "schedule": { "kind": "zb-h1" })",
        R"("dp_shard": 2)", R"("cp": 2)", R"("cp": 2, "context_parallel": { "kind": "ulysses" })",
        R"("tp": 2, "pp": 2)", R"("pp": 2, "dp_shard": 2)"}) {
    SCOPED_TRACE(layout);
    write("plan.json", plan_text(layout));
    expect_equal_to_gloo();
  }
}

/// Every pair of options that up to four ranks can run (matrix.h), as processes.
TEST_F(OnGpus, TheMatrixEqualsGloo) {
  int plans = 0;
  for (const executor_fixtures::Row& row : executor_fixtures::covering_array(2).rows) {
    const Plan plan = executor_fixtures::plan_of(row);
    if (plan.layout.world() > kMostRanks) continue;
    ++plans;
    const std::string name = executor_fixtures::name_of(row);
    SCOPED_TRACE(name);
    write("plan.json", to_json(plan).dump());
    expect_equal_to_gloo();
  }
  EXPECT_GT(plans, 20);
}

/// Weights, gradients and moments alone are this much; the allocator's figures are of the device.
TEST_F(OnGpus, MemoryIsTheDevices) {
  for (const std::string layout : {R"("tp": 1)", R"("tp": 2, "sequence_parallel": true)"}) {
    write("plan.json", plan_text(layout));
    (void)losses("gloo");
    const Json host = lines_of("run.json").back()["summary"]["memory"];
    (void)losses(backend_);
    int records = 0;
    for (const Json& line : lines_of("run.json")) {
      if (!line.contains("peak_allocated_bytes")) continue;
      ++records;
      const auto allocated = line["peak_allocated_bytes"].get<std::int64_t>();
      EXPECT_GE(line["peak_reserved_bytes"].get<std::int64_t>(), allocated);
      // The allocator rounds each block up to 512 bytes, and kernels take other temporaries: never less than a half.
      EXPECT_GT(allocated, host[0]["peak_allocated_bytes"].get<std::int64_t>() / 2) << layout;
      for (const Json& peak : line.value("peaks", Json::array())) EXPECT_LE(peak.get<std::int64_t>(), allocated);
    }
    EXPECT_GE(records, kRunSteps);
  }
}

/// Of ops on compute's stream, of transfers on theirs.
TEST_F(OnGpus, TimesAreEvents) {
  write("plan.json", plan_text(R"("tp": 2, "pp": 2)"));
  (void)losses(backend_);
  int transfers = 0;
  for (const Json& line : lines_of("run.json")) {
    if (!line.contains("ops")) continue;
    double before = 0;
    for (const Json& op : line["ops"]) {
      const auto start = op["start_s"].get<double>();
      const auto end = op["end_s"].get<double>();
      EXPECT_GE(start, before) << op.dump();
      EXPECT_GE(end, start) << op.dump();
      before = end;
      if (!op.contains("transfer_start_s")) continue;
      ++transfers;
      EXPECT_LE(op["transfer_start_s"].get<double>(), op["transfer_end_s"].get<double>()) << op.dump();
      EXPECT_LE(op["transfer_end_s"].get<double>(), line["step_time_s"].get<double>()) << op.dump();
    }
    EXPECT_LE(before, line["step_time_s"].get<double>());
    EXPECT_GT(before, line["step_time_s"].get<double>() / 2) << "the rest is what the host does before and after";
  }
  EXPECT_GT(transfers, 0);
}

TEST_F(OnGpus, ResumesUnderTheProcessorsCheckpointAndBack) {
  write("plan.json", plan_text(R"("tp": 2)"));
  const std::vector<double> expected = losses("gloo");
  for (const auto& [first, second] :
       {std::pair{std::string("gloo"), backend_}, std::pair{backend_, std::string("gloo")}}) {
    fs::remove_all(at("half"));
    ASSERT_EQ(
        run({at("plan.json"), "--steps", "2", "--backend", first, "--checkpoint", at("half"), "--out", at("run.json")}),
        0)
        << text_of("err.txt");
    ASSERT_EQ(run({at("plan.json"), "--steps", std::to_string(kRunSteps), "--backend", second, "--resume", at("half"),
                   "--out", at("run.json")}),
              0)
        << text_of("err.txt");
    const auto got = lines_of("run.json").back()["summary"]["loss"].get<std::vector<double>>();
    ASSERT_FALSE(got.empty());
    EXPECT_NEAR(got.back() / expected.back(), 1, kLoss);
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

/// Figures for foretrain calibrate: collectives over sizes, and what only a device has.
TEST_F(OnGpus, ProbesRun) {
  write("plan.json", plan_text(R"("tp": 2)"));
  ASSERT_EQ(run({at("plan.json"), "--probe", "--backend", backend_, "--out", at("run.json")}), 0) << text_of("err.txt");
  std::map<std::string, int> probes;
  for (const Json& line : lines_of("run.json"))
    if (line.contains("probe")) {
      ++probes[line["probe"].get<std::string>()];
      EXPECT_GT(line["seconds"].get<double>(), 0);
    }
  for (const std::string kind :
       {"all-reduce", "all-gather", "reduce-scatter", "launch", "copy-to-device", "copy-to-host", "copy-on-device"})
    EXPECT_GT(probes[kind], 0) << kind;
}

} // namespace
} // namespace foretrain
