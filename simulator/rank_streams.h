#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "simulator/cost.h"

/// One rank's compute beside its transfers, as the rank machine on private ports has it, but without events: what runs
/// at once has rates, and time goes from one end to the next. Blocks and slots are timed with it.
namespace foretrain {

inline constexpr std::size_t kPorts = 2; ///< inside the node, and towards the network
using PortShares = std::array<double, kPorts>;

/// Work of the compute stream: an op, or a whole block with transfers of its own inside.
struct Work {
  double seconds = 0;     ///< undisturbed
  double computing = 1;   ///< part of that time in which it computes: the rest neither slows nor disturbs transfers
  PortShares used{};      ///< part of that time in which its own transfers use each port
  PortShares load{};      ///< share of the port that they take meanwhile
};

/// A transfer on one of the other streams.
struct Load {
  double latency = 0;      ///< seconds before its bytes move
  double seconds = 0;      ///< that its bytes move, undisturbed
  PortShares load{};       ///< share of each port that it takes meanwhile; 0: does not use it
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

class RankStreams {
public:

  static constexpr std::size_t kLanes = 9; ///< of transfers
  void compute(const Work& work);
  void transfer(std::size_t lane, const Load& load);
  [[nodiscard]] bool computes() const { return computes_; }
  [[nodiscard]] bool transfers(std::size_t lane) const { return (running_ >> lane & 1U) != 0; }
  [[nodiscard]] bool idle() const { return !computes_ && running_ == 0; }

  /// Part of a running transfer that is done, latency included.
  [[nodiscard]] double done(std::size_t lane) const;

  /// Goes on to the next end of something; returns the seconds until then. What has ended no longer runs.
  double advance();
  /// Share of each port that transfers took until the last end.
  [[nodiscard]] const PortShares& in_use() const { return in_use_; }
  /// Transfers under way are slowed by the work, and slow it, as an op that computes does: not while the host waits.
  [[nodiscard]] bool computing() const { return computes_ && work_.computing > 0; }

private:
  struct Lane {
    Load load;
    double latency = 0; ///< left
    PortShares left{};  ///< seconds of undisturbed flow
    PortShares speed{}; ///< of them, relative to undisturbed
  };
  void set_rates();
  void share(std::size_t port, double pace);

  bool computes_ = false;
  Work work_;
  double left_ = 0;
  double rate_ = 1;
  double pace_ = 1; ///< of transfers beside the work
  PortShares in_use_{};
  std::uint32_t running_ = 0; ///< lanes, as bits
  std::array<Lane, kLanes> lanes_;
};

} // namespace foretrain
