#include <array>
#include <cstdio>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/db/samples.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

using namespace test;

constexpr int kBatchSize = 200;

/// store_writer in a process of its own, with its output in a pipe.
class Writer {
public:
  Writer(const std::filesystem::path& database, int batches) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], 1);
      ::close(ends[0]);
      const std::string program = test::build_folder() / "tests/store_writer";
      const std::string data = data_folder().root.string();
      ::execl(program.c_str(), program.c_str(), database.c_str(), data.c_str(), std::to_string(batches).c_str(),
              std::to_string(kBatchSize).c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ::fdopen(ends[0], "r");
  }
  ~Writer() { std::fclose(output_); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// The number of the next committed batch; 0 at the end.
  int next() {
    int batch = 0;
    return std::fscanf(output_, "%d", &batch) == 1 ? batch : 0;
  }
  void kill() { ::kill(process_, SIGKILL); }
  int wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

private:
  pid_t process_ = 0;
  std::FILE* output_ = nullptr;
};

TEST(StoreProcesses, TwoWriteOneFileAtOnce) {
  const TemporaryFolder folder;
  Writer first(folder / "a.db", 20); // both create it
  Writer second(folder / "a.db", 20);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  const auto store = Store::open(folder / "a.db", OpenMode::read, data_folder());
  ASSERT_TRUE(store) << to_string(store.error());
  const auto studies = store->studies(10).value();
  ASSERT_EQ(studies.size(), 2U);
  for (const StudySummary& study : studies) {
    EXPECT_EQ(study.candidates, 20 * kBatchSize);
    EXPECT_TRUE(study.complete);
  }
}

TEST(StoreProcesses, AKillLosesAtMostTheBatchThatWasNotFinished) {
  const TemporaryFolder folder;
  for (int round = 1; round <= 5; ++round) {
    Writer writer(folder / "a.db", 100'000);
    int committed = 0;
    while (committed < round) committed = writer.next();
    writer.kill();
    EXPECT_EQ(writer.wait(), 128 + SIGKILL);
    while (const int more = writer.next()) committed = more;
    auto store = Store::open(folder / "a.db", OpenMode::write, data_folder());
    ASSERT_TRUE(store) << to_string(store.error());
    const auto studies = store->studies(100).value();
    ASSERT_EQ(studies.size(), static_cast<std::size_t>(round));
    EXPECT_FALSE(studies.front().complete);
    EXPECT_EQ(studies.front().candidates % kBatchSize, 0) << "whole batches only";
    EXPECT_GE(studies.front().candidates, committed * kBatchSize) << "what was reported is there";
    EXPECT_LE(studies.front().candidates, (committed + 1) * kBatchSize);
  }
}

} // namespace
} // namespace foretrain
