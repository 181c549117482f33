#include "simulator/pool.h"

#include <csignal>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/spec/io.h"
#include "tests/simulator/lowered.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

const fs::path kWorker = test::build_folder() / "bin/foretrain-sim-worker";

/// A program that stands in for the worker, to misbehave on purpose.
class Script {
public:
  explicit Script(const std::string& body)
      : path_(fs::temp_directory_path() / fmt::format("foretrain-worker-{}-{}", ::getpid(), ++count_)) {
    std::ofstream(path_) << "#!/bin/sh\n" << body << "\n";
    ::chmod(path_.c_str(), 0700);
  }
  ~Script() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

private:
  inline static int count_ = 0;
  fs::path path_;
};

SimulationRequest request_of(int pp) {
  SimulationRequest request;
  request.plan = lowered::plan_of("llama3-8b", 8, 4096, 16);
  request.plan.layout.pp = pp;
  request.plan.layout.tp = 8 / pp;
  request.plan.layout.sequence_parallel = request.plan.layout.tp > 1;
  request.data = lowered::data().root.string();
  return request;
}

bool has_children() {
  int status = 0;
  const pid_t pid = ::waitpid(-1, &status, WNOHANG);
  return pid >= 0; // 0: running, > 0: a zombie that nobody reaped
}

TEST(Pool, GivesTheSameResultsForAnyNumberOfWorkers) {
  const std::vector<SimulationRequest> requests = {request_of(1), request_of(2), request_of(4), request_of(8)};
  std::vector<std::string> texts;
  for (const int workers : {1, 3}) {
    WorkerPool pool({kWorker, workers});
    std::string text;
    for (const Result<Simulation>& result : pool.run(requests)) {
      ASSERT_TRUE(result) << to_string(result.error());
      text += reply_line(0, result);
    }
    texts.push_back(text);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_FALSE(has_children()) << "all workers are gone and reaped";
}

TEST(Pool, AWorkerThatDiesCostsItsCandidateOnly) {
  // Works like the worker, but dies of the second request.
  const Script worker(fmt::format("while read -r line; do\n"
                                  "  case \"$line\" in *'\"id\":1,'*) kill -9 $$;; esac\n"
                                  "  printf '%s\\n' \"$line\" | {}\n"
                                  "done",
                                  kWorker.string()));
  WorkerPool pool({worker.path(), 1});
  const std::vector<Result<Simulation>> results = pool.run({request_of(1), request_of(2), request_of(4)});
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(results[0]) << to_string(results[0].error());
  ASSERT_FALSE(results[1]);
  EXPECT_NE(results[1].error().message.find("killed by signal 9"), std::string::npos) << results[1].error().message;
  EXPECT_TRUE(results[2]) << to_string(results[2].error());
}

TEST(Pool, AKilledWorkerIsNamedWithItsSignal) {
  const Script worker("read line\nkill -9 $$");
  WorkerPool pool({worker.path(), 2});
  for (const Result<Simulation>& result : pool.run({request_of(1), request_of(2), request_of(4)})) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("killed by signal 9"), std::string::npos) << result.error().message;
  }
}

TEST(Pool, AReplyThatIsNoneCostsTheCandidate) {
  const Script worker("read line\necho '{\"id\": \"zero\"}'\nread line");
  WorkerPool pool({worker.path(), 1});
  const auto results = pool.run({request_of(1)});
  ASSERT_FALSE(results[0]);
  EXPECT_NE(results[0].error().message.find("not a reply"), std::string::npos);
}

TEST(Pool, ASimulationThatTakesTooLongIsGivenUp) {
  const Script worker("exec sleep 60");
  WorkerPool pool({worker.path(), 1, 0.2});
  const auto results = pool.run({request_of(1)});
  ASSERT_FALSE(results[0]);
  EXPECT_NE(results[0].error().message.find("took more than"), std::string::npos);
}

TEST(Pool, StopKillsAllWorkers) {
  const Script worker("exec sleep 60");
  std::atomic<bool> stop = false;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  WorkerPool pool({worker.path(), 2});
  const auto results = pool.run({request_of(1), request_of(2), request_of(4)}, &stop);
  later.join();
  for (const Result<Simulation>& result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, Error::Kind::cancelled);
  }
  EXPECT_FALSE(has_children());
}

TEST(Pool, AMissingWorkerIsAnErrorThatNamesIt) {
  WorkerPool pool({"/nonexistent/foretrain-sim-worker", 2});
  const auto results = pool.run({request_of(1), request_of(2)});
  for (const Result<Simulation>& result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().where, "/nonexistent/foretrain-sim-worker");
  }
}

/// Sends text to the real worker and gives its replies.
std::vector<std::string> ask(const std::string& text) {
  const fs::path input = fs::temp_directory_path() / fmt::format("foretrain-ask-{}", ::getpid());
  std::ofstream(input) << text;
  std::FILE* const pipe = ::popen(fmt::format("{} < {}", kWorker.string(), input.string()).c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::vector<std::string> lines(1);
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += static_cast<char>(c);
  }
  EXPECT_EQ(::pclose(pipe), 0) << "the worker survives";
  fs::remove(input);
  lines.pop_back();
  return lines;
}

TEST(Worker, AnswersMalformedRequestsWithErrorsAndGoesOn) {
  const std::string good = request_line(request_of(2));
  const std::string text = "not json\n"
                           "[]\n"
                           "{\"id\": 1}\n"
                           "{\"id\": 2, \"data\": \"/nonexistent\", \"plan\": {}}\n"
                           "{\"id\": 3, \"data\": \"\", \"plan\": {}, \"extra\": 1}\n"
                           "{\"id\": 4, \"data\": 5, \"plan\": null}\n"
                           "{\"id\": 5, \"data\": \"x\", \"plan\": {}, \"record\": \"yes\"}\n"
                           "\n" +
                           std::string(1000, '[') + "\n" + good;
  const std::vector<std::string> replies = ask(text);
  ASSERT_EQ(replies.size(), 9U);
  for (std::size_t i = 0; i < 8; ++i) {
    const Result<Reply> reply = reply_from(replies[i]);
    ASSERT_TRUE(reply) << replies[i];
    ASSERT_FALSE(reply->result) << replies[i];
    EXPECT_FALSE(reply->result.error().message.empty());
  }
  EXPECT_EQ(reply_from(replies[3])->id, 2) << "errors carry the id when there is one";
  const Result<Reply> last = reply_from(replies[8]);
  ASSERT_TRUE(last && last->result);
  EXPECT_GT(last->result->step_time.value, 0);
}

TEST(Worker, APlanThatNeedsMoreDevicesThanThereAreIsAnError) {
  SimulationRequest request = request_of(2);
  request.plan.layout.tp = 64;
  const std::vector<std::string> replies = ask(request_line(request));
  ASSERT_EQ(replies.size(), 1U);
  const Result<Reply> reply = reply_from(replies[0]);
  ASSERT_TRUE(reply);
  EXPECT_FALSE(reply->result);
}

TEST(Protocol, WhatIsReadBackIsEqual) {
  SimulationRequest request = request_of(4);
  request.id = 17;
  request.record = true;
  request.fold = false;
  const Result<SimulationRequest> read = request_from(request_line(request));
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(*read, request);

  Simulation simulation;
  simulation.step_time = Seconds(0.1 + 0.2);
  simulation.stages.resize(2);
  simulation.stages[1].memory = {{0.25, Bytes(5), Bytes(7)}};
  simulation.events = {{1, Lane::ep, TimePart::ep, "all-to-all ep F3", 0.5, 0.75, 3, 9}};
  simulation.links = {{"leaf 0 up", 1e9, 0.5}};
  simulation.groups = {{"ep", 4, 2, 1}};
  const Result<Reply> reply = reply_from(reply_line(3, simulation));
  ASSERT_TRUE(reply && reply->result);
  EXPECT_EQ(*reply->result, simulation);
}

} // namespace
} // namespace foretrain
