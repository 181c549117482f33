#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "executor/rendezvous/protocol.h"
#include "executor/rendezvous/socket.h"

namespace foretrain {

/// Where the ranks of a run meet, and with what a rank comes there.
struct RendezvousPlace {
  std::string host;
  std::uint16_t port = 0;
  std::string token;
  Fingerprint fingerprint;
  int rank = 0;
  std::chrono::milliseconds timeout{60'000};
};

/// The table of keys and values, seen from a rank. Used by one thread at a time; every function throws
/// std::runtime_error when the rendezvous is gone, the run was given up or the time is up.
class RendezvousClient {
public:
  /// Errors: nobody listens, another program does, refused (token, plan, version, rank, world size).
  [[nodiscard]] static Result<std::unique_ptr<RendezvousClient>> connect(const RendezvousPlace& place);

  void set(const std::string& key, const std::string& value);
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout);
  [[nodiscard]] std::int64_t add(const std::string& key, std::int64_t number);
  [[nodiscard]] bool check(const std::vector<std::string>& keys);
  bool remove(const std::string& key);
  /// This machine's address on the way to the rendezvous: where other machines reach it.
  [[nodiscard]] std::string address() const { return own_address(socket_); }

private:
  RendezvousClient(RendezvousPlace place, Descriptor socket) : place_(std::move(place)), socket_(std::move(socket)) {}
  Message ask(Say kind, std::vector<std::string> fields, std::chrono::milliseconds timeout);

  RendezvousPlace place_;
  Descriptor socket_;
  std::string rest_;
};

/// Keeps the rendezvous informed that this rank lives, and hears of others that failed: beside the collective library,
/// which notices only peers that it is talking to.
class RankWatch {
public:
  /// `on_abort` runs once, on the watch's thread. Errors: as RendezvousClient::connect.
  [[nodiscard]] static Result<std::unique_ptr<RankWatch>> start(const RendezvousPlace& place,
                                                                std::function<void(const std::string& why)> on_abort);
  ~RankWatch(); ///< leaves, if it has not said that it failed
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;
  void fail(const std::string& what);

private:
  RankWatch(Descriptor socket, std::chrono::milliseconds silence, std::function<void(const std::string&)> on_abort);
  void loop();

  Descriptor socket_;
  std::chrono::milliseconds silence_; ///< after which the rendezvous counts as gone
  std::function<void(const std::string&)> on_abort_;
  std::mutex mutex_; ///< of sending, and of `ended_`
  bool ended_ = false;
  std::thread thread_;
};

} // namespace foretrain
