#include "executor/rendezvous/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{50};
constexpr std::chrono::milliseconds kGreeting{5'000};   ///< a connection that says nothing for so long is closed
constexpr std::chrono::milliseconds kAfterthought{300}; ///< peers of a dead rank may be heard before its end is seen

Message reply(Say kind, std::vector<std::string> fields = {}) {
  return {static_cast<std::uint8_t>(kind), std::move(fields)};
}

int number_of(const std::string& text, int otherwise) {
  int number = otherwise;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

/// Equal, in a time that does not tell where they differ.
bool same(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    different |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  return different == 0;
}

} // namespace

struct RendezvousServer::Peer {
  Descriptor socket;
  std::string in;
  int rank = -1;
  bool greeted = false;
  bool watches = false;
  bool left = false;
  bool closed = false;
  bool failed = false;
  Clock::time_point heard = Clock::now();
  std::string waits_for; ///< key; empty: for nothing
};

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::listen(RendezvousOptions options) {
  FORETRAIN_TRY(Descriptor listener, listen_at(options.host, options.port));
  std::unique_ptr<RendezvousServer> server(new RendezvousServer(std::move(options), std::move(listener)));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return fail_environment("", "no pipe is left");
  server->wake_read_ = Descriptor(ends[0]);
  server->wake_write_ = Descriptor(ends[1]);
  return server;
}

RendezvousServer::RendezvousServer(RendezvousOptions options, Descriptor listener)
    : options_(std::move(options)), listener_(std::move(listener)) {}

RendezvousServer::~RendezvousServer() {
  ending_ = true;
  if (wake_write_) (void)!::write(wake_write_.get(), "x", 1);
  if (thread_.joinable()) thread_.join();
}

std::uint16_t RendezvousServer::port() const {
  return port_of(listener_);
}

void RendezvousServer::start() {
  thread_ = std::thread([this] { loop(); });
}

void RendezvousServer::abort(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!abort_.empty()) return;
    abort_ = why;
  }
  if (wake_write_) (void)!::write(wake_write_.get(), "x", 1);
}

std::vector<RankEvent> RendezvousServer::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::string RendezvousServer::given_up() const {
  const std::lock_guard lock(mutex_);
  return abort_;
}

void RendezvousServer::wait_for_all(std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (Clock::now() < deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (left_ >= options_.fingerprint.world) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void RendezvousServer::loop() {
  while (!ending_) {
    std::vector<pollfd> waiting = {{listener_.get(), POLLIN, 0}, {wake_read_.get(), POLLIN, 0}};
    for (const auto& peer : peers_) waiting.push_back({peer->socket.get(), POLLIN, 0});
    const std::size_t known = peers_.size();
    (void)::poll(waiting.data(), waiting.size(), static_cast<int>(kTick.count()));
    std::array<char, 64> drained{};
    if (waiting[1].revents) (void)!::read(wake_read_.get(), drained.data(), drained.size());
    if (waiting[0].revents) accept_all();
    for (std::size_t i = 0; i < known; ++i)
      if (waiting[i + 2].revents) read_from(*peers_[i]);
    look_for_silence();
    decide();
    tell_all();
    std::erase_if(peers_, [](const auto& peer) { return peer->closed; });
  }
}

void RendezvousServer::accept_all() {
  while (true) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->socket = std::move(socket);
  }
}

void RendezvousServer::read_from(Peer& peer) {
  std::array<char, 65536> buffer{};
  const ssize_t got = ::recv(peer.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return lost(peer);
  peer.in.append(buffer.data(), static_cast<std::size_t>(got));
  Message message;
  while (!peer.closed) {
    const Decoded decoded = decode(peer.in, peer.greeted ? kMostMessageBytes : kMostGreetingBytes, message);
    if (decoded == Decoded::incomplete) return;
    if (decoded == Decoded::malformed) return lost(peer);
    peer.heard = Clock::now();
    answer(peer, message);
  }
}

void RendezvousServer::answer(Peer& peer, const Message& message) {
  if (!peer.greeted) return greet(peer, message);
  if (!peer.watches) return answer_value(peer, message);
  if (message.kind == static_cast<std::uint8_t>(Say::alive)) (void)send_message(peer.socket, reply(Say::done));
  const std::lock_guard lock(mutex_);
  if (message.kind == static_cast<std::uint8_t>(Say::leave)) {
    peer.left = true;
    ++left_;
  }
  if (message.kind == static_cast<std::uint8_t>(Say::failed) && !message.fields.empty() && !peer.failed) {
    peer.failed = true;
    ++left_;
    events_.push_back({peer.rank, false, message.fields[0]});
    if (decide_at_ == Clock::time_point{}) decide_at_ = Clock::now() + kAfterthought;
  }
}

void RendezvousServer::greet(Peer& peer, const Message& message) {
  const auto refuse = [&](const std::string& why) {
    (void)send_message(peer.socket, reply(Say::refused, {why}));
    peer.closed = true;
  };
  if (message.kind != static_cast<std::uint8_t>(Say::hello) || message.fields.size() != 4) return lost(peer);
  if (!same(message.fields[0], options_.token)) return refuse("it has another token than this run (FORETRAIN_TOKEN)");
  if (const std::string why = given_up(); !why.empty()) return refuse("the run was given up: " + why);
  const int rank = number_of(message.fields[2], -1);
  const bool watches = message.fields[1] == "watch";
  if (rank < 0 || rank >= options_.fingerprint.world)
    return refuse("rank " + message.fields[2] + " is not below " + std::to_string(options_.fingerprint.world));
  // Before the comparison: one of another run, on the same port, must not end this one.
  for (const auto& other : peers_)
    if (other.get() != &peer && other->greeted && other->watches == watches && other->rank == rank)
      return refuse("rank " + std::to_string(rank) +
                    " is already there: two processes have the same RANK, or two runs " + "the same port");
  if (const std::string why = difference(message.fields[3], to_text(options_.fingerprint)); !why.empty()) {
    refuse("it has " + why);
    abort("rank " + std::to_string(rank) + " has " + why);
    return;
  }
  peer.rank = rank;
  peer.watches = watches;
  peer.greeted = true;
  (void)send_message(peer.socket, reply(Say::welcome));
}

void RendezvousServer::answer_value(Peer& peer, const Message& message) {
  if (message.fields.empty()) return lost(peer);
  const std::string& key = message.fields[0];
  const auto found = values_.find(key);
  switch (static_cast<Say>(message.kind)) {
  case Say::set:
    if (message.fields.size() != 2) return lost(peer);
    values_[key] = message.fields[1];
    (void)send_message(peer.socket, reply(Say::done));
    return serve_waiting(key);
  case Say::get:
    if (found == values_.end()) {
      peer.waits_for = key;
      if (const std::string why = given_up(); !why.empty()) (void)send_message(peer.socket, reply(Say::abort, {why}));
      return;
    }
    (void)send_message(peer.socket, reply(Say::value, {found->second}));
    return;
  case Say::add: {
    if (message.fields.size() != 2) return lost(peer);
    const std::int64_t before = found == values_.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10);
    values_[key] = std::to_string(before + std::strtoll(message.fields[1].c_str(), nullptr, 10));
    (void)send_message(peer.socket, reply(Say::value, {values_[key]}));
    return serve_waiting(key);
  }
  case Say::check: {
    const bool all = std::all_of(message.fields.begin(), message.fields.end(),
                                 [this](const std::string& each) { return values_.contains(each); });
    (void)send_message(peer.socket, reply(Say::value, {all ? "1" : "0"}));
    return;
  }
  case Say::remove:
    (void)send_message(peer.socket, reply(Say::value, {values_.erase(key) > 0 ? "1" : "0"}));
    return;
  case Say::hello:
  case Say::alive:
  case Say::failed:
  case Say::leave:
  case Say::welcome:
  case Say::refused:
  case Say::done:
  case Say::value:
  case Say::abort:
    return lost(peer);
  }
}

void RendezvousServer::serve_waiting(const std::string& key) {
  for (const auto& peer : peers_) {
    if (peer->closed || peer->waits_for != key) continue;
    peer->waits_for.clear();
    (void)send_message(peer->socket, reply(Say::value, {values_[key]}));
  }
}

/// The connection ended, or says what no rank would say.
void RendezvousServer::lost(Peer& peer) {
  peer.closed = true;
  if (!peer.greeted || !peer.watches || peer.left || peer.failed) return;
  const std::lock_guard lock(mutex_);
  ++left_;
  events_.push_back({peer.rank, true, "its process ended"});
  decide_at_ = Clock::now();
}

void RendezvousServer::look_for_silence() {
  const Clock::time_point now = Clock::now();
  for (const auto& peer : peers_) {
    if (peer->closed) continue;
    if (!peer->greeted) {
      if (now - peer->heard > kGreeting) peer->closed = true;
      continue;
    }
    if (!peer->watches || peer->left || peer->failed || now - peer->heard <= options_.silence) continue;
    peer->failed = true;
    const std::lock_guard lock(mutex_);
    ++left_;
    events_.push_back({peer->rank, true,
                       "nothing was heard of it for " + std::to_string(options_.silence.count() / 1000) +
                           " s: it is stopped, or its network is gone"});
    decide_at_ = now;
  }
}

/// Names the rank that failed first: one whose process is gone before those that noticed.
void RendezvousServer::decide() {
  const std::lock_guard lock(mutex_);
  if (!abort_.empty() || decide_at_ == Clock::time_point{} || Clock::now() < decide_at_ || events_.empty()) return;
  const auto gone = std::find_if(events_.begin(), events_.end(), [](const RankEvent& event) { return event.gone; });
  const RankEvent& first = gone == events_.end() ? events_.front() : *gone;
  abort_ = first.gone ? "rank " + std::to_string(first.rank) + ": " + first.text : first.text;
}

void RendezvousServer::tell_all() {
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (abort_.empty() || told_) return;
    told_ = true;
    why = abort_;
  }
  for (const auto& peer : peers_) {
    if (peer->closed || !peer->greeted) continue;
    if (peer->watches || !peer->waits_for.empty()) (void)send_message(peer->socket, reply(Say::abort, {why}));
  }
}

} // namespace foretrain
