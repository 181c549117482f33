#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulator/cost.h"

/// One rank's compute beside its transfers, as the rank machine on private ports has it, but without events: what runs
/// at once has rates, and time goes from one end to the next. Blocks and slots are timed with it.
namespace foretrain {

inline constexpr std::size_t kPorts = 2; ///< inside the node, and towards the network
using PortShares = std::array<double, kPorts>;

/// Work of the compute stream: an op, or a stretch of a block with transfers of its own beside it.
struct Work {
  double seconds = 0;                  ///< undisturbed
  bool computes = true;                ///< it slows beside transfers, and they beside it; else it waits
  double rate = 1;                     ///< of compute beside its own transfers, which the time above has seen already
  PortShares own{};                    ///< share of each port that its own transfers take
  std::array<bool, kPorts> critical{}; ///< those through this port put it off when others slow them
};

/// A transfer on one of the other streams.
struct Load {
  double latency = 0;      ///< seconds before its bytes move
  double seconds = 0;      ///< that its bytes move, undisturbed
  PortShares load{};       ///< share of each port that it takes meanwhile; 0: does not use it; more than 1 where
                           ///< it was measured faster than the port is
  double interference = 1; ///< rate of compute beside it
  double beside = 1;       ///< its own rate beside compute
  Evidence evidence = Evidence::measured;
  [[nodiscard]] double duration() const { return latency + seconds; }
};

/// What a transfer takes of its rank's ports; it does not disturb compute.
[[nodiscard]] Load load_of(const Wire& wire, const CostModel& cost);
/// What a collective of a group loads its members with; nothing when the group is one rank.
[[nodiscard]] Load load_of(const Op& op, const Mesh& mesh, const CostModel& cost);

/// Seconds that the first of two transfers lasts when both begin at once on an idle rank.
[[nodiscard]] double beside_transfer(const Load& load, const Load& other);

/// A transfer that goes on while a rank computes: what each costs the other.
struct Beside {
  double delay = 0; ///< seconds that compute takes longer
  double lasts = 0; ///< seconds of the transfer
  double left = 0;  ///< undisturbed seconds of it that are still to come when compute is done
};
/// Both begin at once, as when a slot's output is sent and the next slot starts: `blocks` blocks of equal work one
/// after the other, each followed by `pad` seconds in which the host launches, as far as the work has not outlasted
/// them.
[[nodiscard]] Beside beside_blocks(const Load& load, const std::vector<Work>& work, double pad, int blocks);

class RankStreams {
public:
  static constexpr std::size_t kLanes = 9; ///< of transfers
  /// How far the transfers under way are, in seconds of undisturbed flow to come.
  struct Flows {
    std::uint32_t running = 0; ///< lanes, as bits
    bool moving = true;        ///< bytes of all of them move
    std::array<PortShares, kLanes> left;
  };
  [[nodiscard]] Flows flows() const;
  /// Moves on by as much as between the two, `times` over, where that ends no flow; else leaves all as it is and is
  /// false.
  bool repeat(const Flows& before, const Flows& after, int times = 1);
  /// How often that goes, at most `most`.
  [[nodiscard]] int repeats(const Flows& before, const Flows& after, int most) const;
  void compute(const Work& work);
  void transfer(std::size_t lane, const Load& load);
  void stop(std::size_t lane) { running_ &= ~(1U << lane); }
  [[nodiscard]] bool computes() const { return computes_; }
  [[nodiscard]] bool transfers(std::size_t lane) const { return (running_ >> lane & 1U) != 0; }
  [[nodiscard]] bool idle() const { return !computes_ && running_ == 0; }
  [[nodiscard]] bool alone() const { return running_ == 0; } ///< no transfer runs

  /// Part of a running transfer that is done, latency included.
  [[nodiscard]] double done(std::size_t lane) const;

  /// Goes on to the next end of something; returns the seconds until then. What has ended no longer runs.
  double advance();
  /// Share of each port that transfers took until the last end.
  [[nodiscard]] const PortShares& in_use() const { return in_use_; }
  /// Ports that its bytes moved through at the end of the transfer that ended last on the lane, as bits.
  [[nodiscard]] unsigned last_ports(std::size_t lane) const { return lanes_[lane].last; }
  /// Rate of the work until then.
  [[nodiscard]] double rate() const { return rate_; }

private:
  struct Lane {
    Load load;
    double latency = 0; ///< left
    PortShares left{};  ///< seconds of undisturbed flow
    PortShares speed{}; ///< of them, relative to undisturbed
    unsigned last = 0;
  };
  void set_rates();
  double share(std::size_t port);

  bool computes_ = false;
  Work work_;
  double left_ = 0;
  double rate_ = 1;  ///< of compute
  double speed_ = 1; ///< of the work, relative to undisturbed
  double pace_ = 1;  ///< of transfers beside the work
  PortShares in_use_{};
  PortShares capacity_ = {1, 1}; ///< of each port: no transfer is slower for being measured faster than the port is
  std::uint32_t running_ = 0;    ///< lanes, as bits
  std::array<Lane, kLanes> lanes_;
};

} // namespace foretrain
