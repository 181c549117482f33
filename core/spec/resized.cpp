#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/spec/presets.h"

namespace foretrain {
namespace {

/// Extents at most `limit` whose product is `members`, as even as possible: a slice of a torus. Nothing if none fits.
std::optional<std::vector<int>> slice(const std::vector<int>& limit, std::size_t axis, int members) {
  if (axis == limit.size()) return members == 1 ? std::optional(std::vector<int>{}) : std::nullopt;
  std::optional<std::vector<int>> best;
  for (int extent = 1; extent <= std::min(limit[axis], members); ++extent) {
    if (members % extent != 0) continue;
    auto rest = slice(limit, axis + 1, members / extent);
    if (!rest) continue;
    rest->insert(rest->begin(), extent);
    if (!best || *std::max_element(rest->begin(), rest->end()) < *std::max_element(best->begin(), best->end()))
      best = std::move(rest);
  }
  return best;
}

Result<void> set_fanout(TierSpec& tier, int fanout) {
  if (!tier.shape.empty() && fanout != tier.fanout) {
    auto shape = slice(tier.shape, 0, fanout);
    if (!shape)
      return fail("", fmt::format("{} devices are no slice of the torus of {}", fanout, tier.fanout),
                  "a product of extents that each fit the torus");
    tier.shape = std::move(*shape);
  }
  tier.fanout = fanout;
  return {};
}

/// The most devices of an innermost tier of several machines that divide `devices`; 0 when that leaves less than half
/// of it in use.
int even_part(const ClusterSpec& cluster, int devices) {
  const int node = devices_per_node(cluster);
  const int step = cluster.devices_per_host.value_or(node);
  for (int part = node; 2 * part >= node; part -= step)
    if (devices % part == 0) return part;
  return 0;
}

} // namespace

Result<ClusterSpec> resized(ClusterSpec cluster, int devices) {
  const std::string name = cluster.name.empty() ? "the cluster" : cluster.name;
  if (devices < 1 || devices > kMostDevices)
    return fail("", fmt::format("{} devices are out of range", devices), fmt::format("between 1 and {}", kMostDevices));
  if (cluster.tiers.empty()) return fail("", name + " has no tiers");
  if (devices == device_count(cluster)) return cluster;
  TierSpec& node = cluster.tiers.front();
  if (devices <= node.fanout) {
    if (const auto set = set_fanout(node, devices); !set) return tl::unexpected<Error>(set.error());
    if (cluster.devices_per_host && devices % *cluster.devices_per_host != 0) {
      if (devices > *cluster.devices_per_host)
        return fail("", fmt::format("{} devices are not a multiple of the {} of a machine of {}", devices,
                                    *cluster.devices_per_host, name));
      cluster.devices_per_host = devices;
    }
    cluster.tiers.resize(1);
    return cluster;
  }
  if (cluster.tiers.size() == 1)
    return fail("", fmt::format("{} devices are more than the {} that {} joins", devices, node.fanout, name),
                "it has no further tier");
  const int part = even_part(cluster, devices);
  if (part == 0)
    return fail("", fmt::format("{} devices are not a multiple of the {} of a node of {}", devices, node.fanout, name),
                fmt::format("for example {} or {}", devices / node.fanout * node.fanout,
                            (devices / node.fanout + 1) * node.fanout));
  if (const auto set = set_fanout(node, part); !set) return tl::unexpected<Error>(set.error());
  int groups = devices / part;
  for (std::size_t i = 1; i < cluster.tiers.size(); ++i) {
    TierSpec& tier = cluster.tiers[i];
    const bool outermost = i + 1 == cluster.tiers.size();
    // Inner tiers stay whole; only what is left may cut one, and then nothing stands outside it.
    if (outermost || groups <= tier.fanout) {
      if (const auto set = set_fanout(tier, groups); !set) return tl::unexpected<Error>(set.error());
      cluster.tiers.resize(i + 1);
      return cluster;
    }
    if (groups % tier.fanout != 0)
      return fail("",
                  fmt::format("{} devices do not fill tiers '{}' of {} devices of {}", devices, tier.name,
                              devices / groups * tier.fanout, name),
                  fmt::format("a multiple of {}", devices / groups * tier.fanout));
    groups /= tier.fanout;
  }
  return cluster;
}

} // namespace foretrain
