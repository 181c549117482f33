#include "executor/rendezvous/client.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace foretrain {
namespace {

std::string place_text(const RendezvousPlace& place) {
  return place.host + ":" + std::to_string(place.port);
}

Message say(Say kind, std::vector<std::string> fields = {}) {
  return {static_cast<std::uint8_t>(kind), std::move(fields)};
}
bool is(const Message& message, Say kind) {
  return message.kind == static_cast<std::uint8_t>(kind);
}

/// Connects and shows the token.
Result<Descriptor> enter(const RendezvousPlace& place, const char* purpose, std::string& rest) {
  const std::string where = "rank " + std::to_string(place.rank);
  FORETRAIN_TRY(Descriptor socket, connect_to(place.host, place.port, place.timeout));
  const bool sent = send_message(
      socket, say(Say::hello, {place.token, purpose, std::to_string(place.rank), to_text(place.fingerprint)}));
  Message answer;
  const bool answered = sent && receive_message(socket, rest, place.timeout, answer) == Heard::message;
  if (answered && is(answer, Say::welcome)) return socket;
  if (answered && is(answer, Say::refused) && !answer.fields.empty())
    return fail_environment(where, "is refused by the run at " + place_text(place) + ": " + answer.fields[0]);
  return fail_environment(where, "what listens at " + place_text(place) + " is not this run's rank 0",
                          "another program has MASTER_PORT; choose another one");
}

} // namespace

Result<std::unique_ptr<RendezvousClient>> RendezvousClient::connect(const RendezvousPlace& place) {
  std::string rest;
  FORETRAIN_TRY(Descriptor socket, enter(place, "values", rest));
  return std::unique_ptr<RendezvousClient>(new RendezvousClient(place, std::move(socket)));
}

Message RendezvousClient::ask(Say kind, std::vector<std::string> fields, std::chrono::milliseconds timeout) {
  if (!socket_ || !send_message(socket_, say(kind, std::move(fields))))
    throw std::runtime_error("the rendezvous at " + place_text(place_) + " is gone");
  Message answer;
  const Heard heard = receive_message(socket_, rest_, timeout, answer);
  if (heard == Heard::message && is(answer, Say::abort))
    throw std::runtime_error("the run was given up: " + (answer.fields.empty() ? "" : answer.fields[0]));
  if (heard == Heard::message) return answer;
  socket_ = Descriptor(); // a late answer would be taken for that of the next question
  throw std::runtime_error("no answer from the other ranks through " + place_text(place_) + " within " +
                           std::to_string(timeout.count() / 1000) + " s");
}

void RendezvousClient::set(const std::string& key, const std::string& value) {
  (void)ask(Say::set, {key, value}, place_.timeout);
}

std::string RendezvousClient::get(const std::string& key, std::chrono::milliseconds timeout) {
  const Message answer = ask(Say::get, {key}, timeout);
  return answer.fields.empty() ? std::string() : answer.fields[0];
}

std::int64_t RendezvousClient::add(const std::string& key, std::int64_t number) {
  const Message answer = ask(Say::add, {key, std::to_string(number)}, place_.timeout);
  return answer.fields.empty() ? 0 : std::strtoll(answer.fields[0].c_str(), nullptr, 10);
}

bool RendezvousClient::check(const std::vector<std::string>& keys) {
  const Message answer = ask(Say::check, keys, place_.timeout);
  return !answer.fields.empty() && answer.fields[0] == "1";
}

bool RendezvousClient::remove(const std::string& key) {
  const Message answer = ask(Say::remove, {key}, place_.timeout);
  return !answer.fields.empty() && answer.fields[0] == "1";
}

Result<std::unique_ptr<RankWatch>> RankWatch::start(const RendezvousPlace& place,
                                                    std::function<void(const std::string&)> on_abort) {
  std::string rest;
  FORETRAIN_TRY(Descriptor socket, enter(place, "watch", rest));
  std::unique_ptr<RankWatch> watch(new RankWatch(std::move(socket), place.timeout, std::move(on_abort)));
  watch->thread_ = std::thread([raw = watch.get()] { raw->loop(); });
  return watch;
}

RankWatch::RankWatch(Descriptor socket, std::chrono::milliseconds silence,
                     std::function<void(const std::string&)> on_abort)
    : socket_(std::move(socket)), silence_(silence), on_abort_(std::move(on_abort)) {}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) (void)send_message(socket_, say(Say::leave));
    ended_ = true;
  }
  thread_.join();
}

void RankWatch::fail(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!ended_) (void)send_message(socket_, say(Say::failed, {what}));
  ended_ = true;
}

void RankWatch::loop() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLook{20};
  constexpr std::chrono::milliseconds kLongestPeriod{1'000};
  constexpr int kBeats = 5; // within the time after which silence counts as failure, on either side
  const std::chrono::milliseconds period = std::min(kLongestPeriod, silence_ / kBeats);
  std::string rest;
  Clock::time_point next = Clock::now();
  Clock::time_point heard_at = Clock::now();
  Message message;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      if (Clock::now() >= next) {
        next = Clock::now() + period;
        if (!send_message(socket_, say(Say::alive))) break;
      }
    }
    const Heard heard = receive_message(socket_, rest, kLook, message);
    if (heard == Heard::gone || Clock::now() - heard_at > silence_) break;
    if (heard == Heard::message) heard_at = Clock::now();
    if (heard == Heard::message && is(message, Say::abort))
      return on_abort_(message.fields.empty() ? "" : message.fields[0]);
  }
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
  }
  on_abort_("the rendezvous is gone: rank 0, or the launcher, has died, or the network to it");
}

} // namespace foretrain
