#pragma once

#include <string>
#include <vector>

#include "core/program/ranks.h"
#include "core/spec/cluster.h"
#include "simulator/private_network.h"
#include "simulator/world.h"

namespace foretrain {

struct NetworkLink {
  std::string name;
  double capacity = 0; ///< B/s, background load taken off
};

/// The links of a cluster that simulated ranks use, and the way from one rank to another.
///
/// Every rank has a port inside its node and a port towards the network, each with an out and an in link. Groups of
/// every network tier but the outermost have an uplink and a downlink towards the next; with a rail fabric, one pair
/// per local index. Inside a switch nothing is a bottleneck, and an uplink is one trunk (perfect balance over its
/// cables).
///
/// A simulated rank that stands for copies of itself sees the fraction of a shared link that is its own.
class Topology {
public:
  /// `rates`: of one rank, undisturbed, without background load and oversubscription.
  Topology(const ClusterSpec& cluster, const Mesh& mesh, const World& world, const TierRates& rates);

  [[nodiscard]] const std::vector<NetworkLink>& links() const { return links_; }

  /// Appends the links from one simulated rank to another that it meets at `tier`. On a rail fabric, traffic between
  /// local indices first goes to the neighbour on the other's rail.
  void route(int from, int to, int tier, std::vector<int>& into) const;
  /// Whether traffic towards the network may go through another rank's ports.
  [[nodiscard]] bool detours() const;
  /// Where a member of a group sends what crosses each tier: the neighbour in the ring over that tier's groups, with
  /// the same place inside them; -1 where the group does not cross the tier. Simulated ranks.
  [[nodiscard]] std::array<int, kTiers> neighbours(Group group, int simulated) const;

private:
  int add(std::string name, double capacity);
  [[nodiscard]] int uplink(int rank, int tier) const;

  const Mesh& mesh_;
  const World& world_;
  std::vector<int> under_;  ///< devices in one group of each tier
  std::vector<bool> rails_; ///< per tier: one switch per local index
  std::vector<NetworkLink> links_;
  std::vector<std::vector<int>> up_; ///< per tier, group and rail: uplink; the downlink follows it
};

/// The cluster as one transfer alone sees it: nobody else on its links, no thinned uplinks.
[[nodiscard]] ClusterSpec undisturbed(ClusterSpec cluster);

} // namespace foretrain
