#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/rendezvous/protocol.h"
#include "executor/rendezvous/socket.h"

namespace foretrain {

struct RendezvousOptions {
  std::string host = "127.0.0.1";            ///< listens at this address alone
  std::uint16_t port = 0;                    ///< 0: one that is free
  std::string token;                         ///< a peer that does not show it is refused
  Fingerprint fingerprint;                   ///< a peer with another one is refused, with what differs
  std::chrono::milliseconds silence{60'000}; ///< a rank that is not heard of for so long has failed
};

/// What the rendezvous learned of a rank, in order.
struct RankEvent {
  int rank = 0;
  bool gone = false; ///< its connection ended, or it fell silent; else it says itself that it failed
  std::string text;
};

/// Where ranks find each other: a table of keys and values, and a watch over who is alive. When one fails, all others
/// are told. Lives in the launcher, or in the process of rank 0.
class RendezvousServer {
public:
  /// Listens; nothing is answered before `start`, so that a process may fork in between.
  /// Errors: those of `listen_at`.
  [[nodiscard]] static Result<std::unique_ptr<RendezvousServer>> listen(RendezvousOptions options);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  void start();
  /// Tells every rank that the run is given up.
  void abort(const std::string& why);
  [[nodiscard]] std::string given_up() const; ///< why; empty: the run goes on
  [[nodiscard]] std::vector<RankEvent> events() const;
  /// Waits until every rank has left or failed, or the time is up.
  void wait_for_all(std::chrono::milliseconds timeout);

private:
  struct Peer;
  RendezvousServer(RendezvousOptions options, Descriptor listener);
  void loop();
  void accept_all();
  void read_from(Peer& peer);
  void answer(Peer& peer, const Message& message);
  void greet(Peer& peer, const Message& message);
  void answer_value(Peer& peer, const Message& message);
  void serve_waiting(const std::string& key);
  void lost(Peer& peer);
  void look_for_silence();
  void decide();
  void tell_all();

  RendezvousOptions options_;
  Descriptor listener_;
  Descriptor wake_read_;
  Descriptor wake_write_;
  std::thread thread_;
  std::atomic<bool> ending_{false};

  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<std::string, std::string> values_;

  mutable std::mutex mutex_; ///< of what other threads see
  std::vector<RankEvent> events_;
  std::string abort_; ///< what ranks are told; empty: nothing has failed
  int left_ = 0;
  std::chrono::steady_clock::time_point
      decide_at_{}; ///< a rank said that it failed: whose process is gone is told first
  bool told_ = false;
};

} // namespace foretrain
