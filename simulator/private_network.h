#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/machine.h"

namespace foretrain {

/// Bytes per second that one rank moves through each tier: [0] its port inside the node, [1] its port towards the
/// network, above that its share of the uplinks.
using TierRates = std::array<double, kTiers>;

/// A rank has two ports, each full duplex: inside the node, and one for all tiers above.
[[nodiscard]] constexpr std::size_t port_of(int tier) {
  return tier == 0 ? 0 : 1;
}

/// Rates as the cost model knows them: the best share of a link that any transfer reaches, and no less than the fastest
/// undisturbed transfer of the script.
[[nodiscard]] TierRates tier_rates(const CostModel& cost, const Script& script);
/// The fastest undisturbed transfer of the script on each tier.
[[nodiscard]] TierRates tier_rates(const Script& script);

/// Ports that only one lane of any rank uses: a transfer there is never disturbed, so a timer does.
[[nodiscard]] std::array<bool, 2> exclusive_ports(const Script& script);

/// Every rank has its own ports, full duplex, shared max-min among its own transfers; beyond them the network is never
/// the bottleneck.
class PrivateNetwork final : public Network {
public:
  PrivateNetwork(const World& world, const Script& script, TierRates rates);
  [[nodiscard]] double now() const override { return now_; }
  void call_at(double when, std::uint64_t token) override;
  void start(const TransferRequest& request) override;
  void set_pace(int transfer, double pace) override;
  void run(NetworkClient& client) override;

private:
  enum class Kind : std::uint8_t { client, begin, end, flow };
  struct Event {
    double time = 0;
    std::uint64_t order = 0; ///< of creation: breaks ties
    std::uint64_t token = 0; ///< client's token, transfer, or flow
    Kind kind = Kind::client;
    std::uint32_t version = 0;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  struct Flow {
    int transfer = -1; ///< -1: free
    int out = 0;       ///< ports
    int in = 0;
    double remaining = 0;
    double cap = 0;
    double rate = 0;
    double updated = 0;
    std::uint32_t version = 0;
  };
  struct Transfer {
    TransferRequest request;
    int flows = 0; ///< still running
    double pace = 1;
    bool timed = true;  ///< in its latency, or undisturbed to its end
    bool whole = false; ///< timed to its end
    double left = 0;    ///< timed: seconds at full pace, at `updated`
    double updated = 0;
    std::uint32_t version = 0;
  };

  void push(double time, Kind kind, std::uint64_t token, std::uint32_t version = 0);
  void begin(int transfer);
  void schedule(int transfer);
  void add_flow(int transfer, int from, int to, std::size_t port, double bytes, double cap);
  void end_flow(int flow, NetworkClient& client);
  /// Max-min rates of all flows, caps respected; called when a port is or was asked for more than it has.
  void share();
  void set_rate(int flow, double rate);
  [[nodiscard]] int port_index(int rank, std::size_t port, bool in) const {
    return rank * 4 + static_cast<int>(port) * 2 + (in ? 1 : 0);
  }
  [[nodiscard]] double capacity(int port) const { return rates_[static_cast<std::size_t>(port / 2 % 2)]; }

  const World& world_;
  TierRates rates_;
  std::array<bool, 2> exclusive_{};
  double now_ = 0;
  std::uint64_t order_ = 0;
  std::vector<Event> events_;       ///< heap
  std::vector<Transfer> transfers_; ///< by request id
  std::vector<Flow> flows_;
  std::vector<int> free_flows_;
  std::vector<int> live_;      ///< flows in order of start
  std::vector<double> demand_; ///< per port: sum of caps
  std::vector<double> left_;   ///< scratch of share()
  std::vector<int> count_;
};

} // namespace foretrain
