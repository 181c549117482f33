#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "executor/rendezvous/client.h"
#include "executor/rendezvous/server.h"

/// Ranks that meet, are refused, or learn that another one failed. Ranks are threads with sockets of their own.
namespace foretrain {
namespace {

using namespace std::chrono_literals;

constexpr int kWorld = 3;
constexpr auto kSilence = 3000ms; // a busy machine is not silence
constexpr auto kPatience = 20s;   ///< for what happens within milliseconds on an idle machine

Fingerprint fingerprint() {
  return {"version 1", "plan abc", "10 steps", kWorld};
}

class Rendezvous : public testing::Test {
protected:
  void SetUp() override {
    RendezvousOptions options;
    options.token = "secret";
    options.fingerprint = fingerprint();
    options.silence = kSilence;
    auto listening = RendezvousServer::listen(options);
    ASSERT_TRUE(listening) << to_string(listening.error());
    server_ = std::move(*listening);
    server_->start();
  }
  [[nodiscard]] RendezvousPlace place(int rank) const {
    return {"127.0.0.1", server_->port(), "secret", fingerprint(), rank, 2s};
  }
  [[nodiscard]] std::string refusal(const RendezvousPlace& place) const {
    const auto client = RendezvousClient::connect(place);
    return client ? "" : to_string(client.error());
  }

  std::unique_ptr<RendezvousServer> server_;
};

/// A watch whose abort can be waited for.
struct Watched {
  std::promise<std::string> promise;
  std::future<std::string> why = promise.get_future();
  std::unique_ptr<RankWatch> watch;

  explicit Watched(const RendezvousPlace& place) {
    auto started = RankWatch::start(place, [this](const std::string& text) { promise.set_value(text); });
    EXPECT_TRUE(started) << to_string(started.error());
    if (started) watch = std::move(*started);
  }
  std::string told() { return why.wait_for(kPatience) == std::future_status::ready ? why.get() : "nothing"; }
};

TEST_F(Rendezvous, HandsValuesFromRankToRank) {
  const auto first = RendezvousClient::connect(place(0)).value();
  const auto second = RendezvousClient::connect(place(1)).value();
  const std::string bytes("a\0b", 3);
  auto waiting = std::async(std::launch::async, [&] { return second->get("key", 2s); });
  first->set("key", bytes);
  EXPECT_EQ(waiting.get(), bytes);
  EXPECT_EQ(first->add("count", 2), 2);
  EXPECT_EQ(second->add("count", 3), 5);
  EXPECT_TRUE(second->check({"key", "count"}));
  EXPECT_FALSE(second->check({"key", "other"}));
  EXPECT_TRUE(second->remove("key"));
  EXPECT_FALSE(second->check({"key"}));
  EXPECT_THROW((void)second->get("never", 50ms), std::runtime_error);
}

TEST_F(Rendezvous, RefusesWhoDoesNotBelong) {
  RendezvousPlace other = place(1);
  other.token = "guess";
  EXPECT_NE(refusal(other).find("another token"), std::string::npos) << refusal(other);
  other = place(kWorld);
  EXPECT_NE(refusal(other).find("not below 3"), std::string::npos) << refusal(other);
  const auto first = RendezvousClient::connect(place(1)).value();
  EXPECT_NE(refusal(place(1)).find("already there"), std::string::npos);
}

TEST_F(Rendezvous, TellsEveryoneThatARankHasAnotherPlan) {
  Watched honest(place(0));
  RendezvousPlace other = place(1);
  other.fingerprint.plan = "plan xyz";
  EXPECT_NE(refusal(other).find("another plan than rank 0: plan xyz instead of plan abc"), std::string::npos)
      << refusal(other);
  EXPECT_NE(honest.told().find("rank 1 has another plan"), std::string::npos);
}

TEST_F(Rendezvous, ARankOfAnotherRunOnTheSamePortDoesNotEndThisOne) {
  const auto own = RendezvousClient::connect(place(1)).value();
  Watched watched(place(1));
  RendezvousPlace stray = place(1);
  stray.fingerprint.plan = "plan xyz";
  EXPECT_NE(refusal(stray).find("already there"), std::string::npos) << refusal(stray);
  EXPECT_FALSE(RankWatch::start(stray, [](const std::string&) {}));
  EXPECT_EQ(server_->given_up(), "");
}

TEST_F(Rendezvous, NamesTheRankWhoseConnectionEnded) {
  Watched first(place(0));
  {
    const Descriptor dying = connect_to("127.0.0.1", server_->port(), 2s).value();
    ASSERT_TRUE(
        send_message(dying, {static_cast<std::uint8_t>(Say::hello), {"secret", "watch", "2", to_text(fingerprint())}}));
    std::string rest;
    Message welcome;
    ASSERT_EQ(receive_message(dying, rest, 2s, welcome), Heard::message);
  }
  EXPECT_EQ(first.told(), "rank 2: its process ended");
}

TEST_F(Rendezvous, NamesTheRankThatFellSilent) {
  Watched first(place(0));
  const Descriptor silent = connect_to("127.0.0.1", server_->port(), 2s).value();
  ASSERT_TRUE(
      send_message(silent, {static_cast<std::uint8_t>(Say::hello), {"secret", "watch", "1", to_text(fingerprint())}}));
  const std::string told = first.told();
  EXPECT_NE(told.find("rank 1: nothing was heard of it"), std::string::npos) << told;
}

TEST_F(Rendezvous, PassesOnWhatARankSaysItFailedAt) {
  Watched first(place(0));
  Watched second(place(1));
  second.watch->fail("rank 1, step 3: out of memory");
  EXPECT_EQ(first.told(), "rank 1, step 3: out of memory");
  EXPECT_NE(refusal(place(2)).find("given up"), std::string::npos); // too late
}

TEST_F(Rendezvous, LeavingIsNoFailure) {
  Watched first(place(0));
  { Watched second(place(1)); }
  { Watched third(place(2)); }
  EXPECT_EQ(first.why.wait_for(kSilence + 200ms), std::future_status::timeout);
  EXPECT_EQ(server_->given_up(), "");
}

TEST_F(Rendezvous, TellsTheRanksWhenItEndsItself) {
  Watched first(place(0));
  server_.reset();
  EXPECT_NE(first.told().find("the rendezvous is gone"), std::string::npos);
}

TEST_F(Rendezvous, SurvivesStrangers) {
  for (const std::string text : {"GET / HTTP/1.1\r\n\r\n", "FTR1\xff\xff\xff\xff\x01\x01", "FTR1"}) {
    const Descriptor stranger = connect_to("127.0.0.1", server_->port(), 2s).value();
    ASSERT_EQ(::send(stranger.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  EXPECT_EQ(refusal(place(0)), "");
  EXPECT_EQ(server_->given_up(), "");
}

TEST(RendezvousServerTest, SaysWhatIsWrongWithItsAddress) {
  RendezvousOptions options;
  const auto first = RendezvousServer::listen(options).value();
  options.port = first->port();
  const auto used = RendezvousServer::listen(options);
  ASSERT_FALSE(used);
  EXPECT_NE(to_string(used.error()).find("another program listens there"), std::string::npos);
  options.port = 0;
  options.host = "192.0.2.1"; // reserved for documentation: nobody has it
  const auto foreign = RendezvousServer::listen(options);
  ASSERT_FALSE(foreign);
  EXPECT_NE(to_string(foreign.error()).find("not an address of this machine"), std::string::npos);
}

TEST(RendezvousClientTest, SaysThatNobodyListens) {
  const auto busy = listen_at("127.0.0.1", 0).value();
  RendezvousPlace place{"127.0.0.1", port_of(busy), "", fingerprint(), 0, 300ms};
  const auto mute = RendezvousClient::connect(place); // accepts, and says nothing
  ASSERT_FALSE(mute);
  EXPECT_NE(to_string(mute.error()).find("is not this run's rank 0"), std::string::npos) << to_string(mute.error());
  place.port = 1;
  const auto nobody = RendezvousClient::connect(place);
  ASSERT_FALSE(nobody);
  EXPECT_NE(to_string(nobody.error()).find("rank 0 cannot be reached"), std::string::npos);
  place.host = "no such host.invalid";
  EXPECT_FALSE(RendezvousClient::connect(place));
}

TEST(RendezvousMessages, ComeBackAsTheyWentAndNothingElsePasses) {
  const Message sent{7, {"", std::string("\0\xff", 2), std::string(1000, 'x')}};
  std::string bytes = encode(sent);
  const std::string whole = bytes;
  Message got;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    std::string part = whole.substr(0, cut);
    EXPECT_EQ(decode(part, kMostMessageBytes, got), Decoded::incomplete) << cut;
  }
  bytes += "FTR1";
  ASSERT_EQ(decode(bytes, kMostMessageBytes, got), Decoded::message);
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.fields, sent.fields);
  EXPECT_EQ(bytes, "FTR1");
  std::string large = whole;
  EXPECT_EQ(decode(large, 100, got), Decoded::malformed);
  std::string wrong = whole;
  wrong[11] = '\x7f'; // a field longer than the message
  EXPECT_EQ(decode(wrong, kMostMessageBytes, got), Decoded::malformed);
}

} // namespace
} // namespace foretrain
