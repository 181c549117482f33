#include "core/spec/cluster.h"

namespace foretrain {

int device_count(const ClusterSpec& cluster) {
  int count = 1;
  for (const TierSpec& tier : cluster.tiers) count *= tier.fanout;
  return count;
}

int devices_per_node(const ClusterSpec& cluster) {
  return cluster.tiers.empty() ? 1 : cluster.tiers.front().fanout;
}

std::vector<std::string> unknown_figures(const ClusterSpec& cluster) {
  std::vector<std::string> unknown;
  const std::string device = "device " + cluster.device.name + ": ";
  if (!cluster.device.memory && !cluster.device.usable_memory) unknown.push_back(device + "memory");
  if (!cluster.device.memory_bandwidth) unknown.push_back(device + "memory_bandwidth");
  for (const TierSpec& tier : cluster.tiers)
    // A tier that joins nothing carries nothing.
    if (tier.fanout > 1 && tier.link.bandwidth.value == 0) unknown.push_back("tier " + tier.name + ": link bandwidth");
  return unknown;
}

} // namespace foretrain
