#include "executor/communicators/nccl/link.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/executor/fake_gpu/fake_gpu.h"

/// The link of NCCL itself, compiled against a runtime and a library whose streams are threads (fake_gpu): what runs
/// before what, what is held how long, when waiting is given up. The library that runs on GPUs has the same source.
namespace foretrain {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCount = 3;
constexpr auto kSlow = 150ms; ///< of a kernel that tells right order from luck

/// One rank: a stream of compute, a link, one channel of two members.
struct Member {
  cudaStream_t compute = nullptr;
  std::unique_ptr<NcclLink> link;
  int channel = -1;
  std::vector<double> data = std::vector<double>(kCount);

  [[nodiscard]] Elements elements() { return {data.data(), data.size(), ElementType::fp64, false, nullptr}; }
  void launch(std::function<void()> kernel) { fake_gpu::launch(compute, std::move(kernel)); }
  void synchronize() { (void)cudaStreamSynchronize(compute); }
};

class Streams : public testing::Test {
protected:
  void SetUp() override { connect(20s); }
  void TearDown() override {
    for (Member& member : members_) member.synchronize();
    std::vector<std::thread> closing; // together, as processes end
    for (Member& member : members_) closing.emplace_back([&member] { member.link.reset(); });
    for (std::thread& thread : closing) thread.join();
    for (Member& member : members_) (void)cudaStreamDestroy(member.compute);
    EXPECT_EQ(fake_gpu::live_events(), 0);
  }
  void connect(std::chrono::milliseconds timeout) {
    std::vector<std::thread> threads;
    for (Member& member : members_) {
      if (!member.compute) (void)cudaStreamCreateWithFlags(&member.compute, cudaStreamNonBlocking);
      member.link = std::make_unique<NcclLink>(DeviceLinkOptions{0, member.compute, timeout});
    }
    const std::string id = members_[0].link->make_id();
    for (int index = 0; index < 2; ++index)
      threads.emplace_back([this, index, id] {
        Member& member = members_[static_cast<std::size_t>(index)];
        member.channel = member.link->open(id, index, 2);
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::array<Member, 2> members_;
};

TEST_F(Streams, AnOperationSeesWhatComputeWroteBeforeAndComputeSeesWhatItWrote) {
  std::array<double, 2> seen{};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Member& m = members_[rank];
    m.launch([&m, rank] {
      std::this_thread::sleep_for(kSlow);
      m.data.assign(kCount, static_cast<double>(rank + 1));
    });
    m.link->all_reduce(m.channel, m.elements(), false)->wait(); // returns at once: the device waits
    m.launch([&m, &seen, rank] { seen[rank] = m.data[2]; });
    m.launch([&m] { m.data.assign(kCount, -1); }); // the memory is another's now
  }
  for (Member& member : members_) member.synchronize();
  EXPECT_EQ(seen[0], 3);
  EXPECT_EQ(seen[1], 3);
}

TEST_F(Streams, TheHostDoesNotWaitForTheDevice) {
  Member& m = members_[0];
  std::atomic<bool> computed{false};
  m.launch([&computed] {
    std::this_thread::sleep_for(kSlow);
    computed = true;
  });
  m.link->all_reduce(m.channel, m.elements(), false)->wait();
  EXPECT_FALSE(computed) << "the host issued, and went on";
  members_[1].link->all_reduce(members_[1].channel, members_[1].elements(), false)->wait();
  m.synchronize();
  EXPECT_TRUE(computed);
}

TEST_F(Streams, ComputeRunsBesideATransferUntilItWaitsForIt) {
  Member& receiver = members_[0];
  Member& sender = members_[1];
  std::atomic<bool> beside{false};
  double seen = 0;
  const auto receive = receiver.link->exchange(receiver.channel, {{false, 1, receiver.elements()}});
  receiver.launch([&beside] { beside = true; });
  receiver.synchronize(); // nothing was sent yet: compute does not stand behind the receive
  EXPECT_TRUE(beside);
  receive->wait();
  receiver.launch([&] { seen = receiver.data[0]; });
  sender.launch([&sender] {
    std::this_thread::sleep_for(kSlow);
    sender.data.assign(kCount, 5);
  });
  const auto send = sender.link->exchange(sender.channel, {{true, 0, sender.elements()}});
  receiver.synchronize();
  EXPECT_EQ(seen, 5);
  send->wait();
}

TEST_F(Streams, ATensorIsHeldUntilItsOperationIsWaitedForAndNoLonger) {
  std::array<std::weak_ptr<const void>, 2> held;
  std::vector<DeviceLink::Started> started;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Member& m = members_[rank];
    auto owner = std::make_shared<int>(0);
    held[rank] = owner;
    Elements elements = m.elements();
    elements.owner = std::move(owner);
    started.push_back(m.link->all_reduce(m.channel, elements, false));
  }
  std::this_thread::sleep_for(2 * kSlow); // done, and seen by the thread that watches
  for (const auto& owner : held) EXPECT_FALSE(owner.expired());
  for (const auto& one : started) one->wait();
  for (const auto& owner : held) EXPECT_TRUE(owner.expired());
}

TEST_F(Streams, GathersAndScattersSharesInTheirOrder) {
  std::array<std::vector<double>, 2> whole;
  std::array<std::vector<double>, 2> share;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Member& m = members_[rank];
    m.data.assign(kCount, static_cast<double>(rank));
    whole[rank].resize(2 * kCount);
    share[rank].resize(kCount);
    const Elements all{whole[rank].data(), 2 * kCount, ElementType::fp64, false, nullptr};
    const Elements part{share[rank].data(), kCount, ElementType::fp64, false, nullptr};
    m.link->all_gather(m.channel, m.elements(), all)->wait();
    m.link->reduce_scatter(m.channel, all, part)->wait();
  }
  for (Member& member : members_) member.synchronize();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(whole[rank], (std::vector<double>{0, 0, 0, 1, 1, 1}));
    EXPECT_EQ(share[rank], std::vector<double>(kCount, rank == 0 ? 0.0 : 2.0));
  }
}

/// Counts of rows, agreements on checkpoints: small, and the host reads them.
TEST_F(Streams, MemoryOfTheHostIsCopiedAndItsWaitIsOnTheHost) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([this, rank] {
      Member& m = members_[rank];
      m.data.assign(kCount, static_cast<double>(rank + 1));
      Elements elements = m.elements();
      elements.on_host = true;
      m.link->all_reduce(m.channel, elements, true)->wait();
      EXPECT_EQ(m.data[0], 2);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Streams, TimesAreThoseOfTheChannel) {
  for (Member& member : members_) {
    member.link->start_clock();
    EXPECT_EQ(member.link->issued(), 0);
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Member& m = members_[rank];
    if (rank == 1) m.launch([] { std::this_thread::sleep_for(kSlow); });
    m.link->all_reduce(m.channel, m.elements(), false)->wait();
    m.link->all_reduce(m.channel, m.elements(), false)->wait();
    EXPECT_EQ(m.link->issued(), 2);
  }
  for (Member& member : members_) member.synchronize();
  const double slow = std::chrono::duration<double>(kSlow).count();
  const std::vector<TransferTime> waits = members_[0].link->take_times();
  const std::vector<TransferTime> late = members_[1].link->take_times();
  ASSERT_EQ(waits.size(), 2U);
  ASSERT_EQ(late.size(), 2U);
  EXPECT_GT(waits[0].end - waits[0].start, slow * 0.9) << "it waited for its peer";
  EXPECT_GT(late[0].start, slow * 0.9) << "what it needs was not there before";
  EXPECT_LT(late[0].end - late[0].start, slow * 0.9);
  EXPECT_GE(waits[1].start, waits[0].end);
  EXPECT_EQ(members_[0].link->take_times().size(), 0U);
}

TEST_F(Streams, EventsAreUsedAgain) {
  int before = 0;
  for (int step = 0; step < 4; ++step) {
    for (Member& m : members_) m.link->start_clock();
    for (int i = 0; i < 20; ++i)
      for (Member& m : members_) m.link->all_reduce(m.channel, m.elements(), false)->wait();
    for (Member& m : members_) m.synchronize();
    if (step == 1) before = fake_gpu::live_events();
    std::this_thread::sleep_for(2 * kSlow); // the thread that watches lets go of what is done
  }
  EXPECT_LE(fake_gpu::live_events(), before);
}

class ImpatientStreams : public Streams {
protected:
  void SetUp() override { connect(400ms); }
};

TEST_F(ImpatientStreams, ADeviceThatIsBehindTheHostIsNoLostPeer) {
  for (Member& m : members_) {
    m.launch([] { std::this_thread::sleep_for(1200ms); }); // the host waits below long before compute comes there
    m.link->all_reduce(m.channel, m.elements(), false)->wait();
  }
  for (Member& m : members_) m.synchronize();
  for (Member& m : members_) EXPECT_NO_THROW(m.link->check());
}

TEST_F(ImpatientStreams, APeerThatDoesNotComeEndsTheWaitAndIsTold) {
  Member& m = members_[0];
  const auto start = Clock::now();
  m.link->all_reduce(m.channel, m.elements(), false)->wait();
  m.synchronize(); // the communicators are aborted: no stream waits for ever
  EXPECT_LT(Clock::now() - start, 5s);
  try {
    m.link->check();
    FAIL() << "what compute has now is nothing, and nobody said so";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("all-reduce: not done within"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)m.link->all_reduce(m.channel, m.elements(), false), std::runtime_error);
  EXPECT_THROW(m.link->start_clock(), std::runtime_error);
}

TEST_F(ImpatientStreams, AReceiveThatNobodyWaitsForYetHasTime) {
  Member& receiver = members_[0];
  const auto receive = receiver.link->exchange(receiver.channel, {{false, 1, receiver.elements()}});
  std::this_thread::sleep_for(1s); // a bubble
  EXPECT_NO_THROW(receiver.link->check());
  members_[1].link->exchange(members_[1].channel, {{true, 0, members_[1].elements()}})->wait();
  receive->wait();
}

TEST_F(Streams, AnErrorOfTheLibraryIsToldToWhoeverAsksNext) {
  Member& m = members_[0];
  const auto reduce = m.link->all_reduce(m.channel, m.elements(), false);
  fake_gpu::break_communicators();
  const auto deadline = Clock::now() + 5s;
  std::string told;
  while (told.empty() && Clock::now() < deadline) {
    try {
      m.link->check();
      std::this_thread::sleep_for(10ms);
    } catch (const std::exception& error) {
      told = error.what();
    }
  }
  fake_gpu::mend_communicators();
  EXPECT_NE(told.find("an error of the fake library"), std::string::npos) << told;
  EXPECT_THROW(reduce->wait(), std::runtime_error);
}

} // namespace
} // namespace foretrain
