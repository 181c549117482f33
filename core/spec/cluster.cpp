#include "core/spec/cluster.h"

namespace foretrain {

int device_count(const ClusterSpec& cluster) {
  int count = 1;
  for (const TierSpec& tier : cluster.tiers) count *= tier.fanout;
  return count;
}

int devices_per_node(const ClusterSpec& cluster) { return cluster.tiers.empty() ? 1 : cluster.tiers.front().fanout; }

} // namespace foretrain
