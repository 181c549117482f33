#pragma once

#include "core/base/describe.h"
#include "core/spec/cluster.h"

/// How devices and clusters are read and written. Included by files that do so, never by headers.
namespace foretrain {

template <> struct EnumNames<Fabric> {
  static constexpr std::array names = {std::pair{Fabric::switched, "switch"}, std::pair{Fabric::mesh, "mesh"},
                                       std::pair{Fabric::rail, "rail"}, std::pair{Fabric::fat_tree, "fat-tree"},
                                       std::pair{Fabric::torus, "torus"}};
};

inline constexpr double kSlowestRate = 1;    ///< byte or FLOP per second
inline constexpr double kFastestLink = 1e16; ///< bytes per second
inline constexpr double kFastestFlop = 1e20; ///< FLOP per second
inline constexpr double kLongestTime = 1e4;  ///< seconds, of a latency or a launch

namespace detail {
constexpr auto peak(const char* key, std::optional<FlopPerSecond> DeviceSpec::*pointer, const char* doc) {
  return optional(key, pointer, doc).between(kSlowestRate, kFastestFlop);
}
} // namespace detail

template <> struct Described<DeviceSpec> {
  using T = DeviceSpec;
  static constexpr const char* name = "device";
  static constexpr const char* doc =
      "An accelerator. A figure that is not known is left out; what needs it refuses with its name.";
  static constexpr auto members = std::tuple{
      required("name", &T::name, "Name, lower case with dashes."),
      optional("vendor", &T::vendor, "Maker."),
      optional("architecture", &T::architecture, "Family, for example Hopper."),
      optional("memory", &T::memory, "Marketed size of the device memory.").between(1, 1e18),
      optional("usable_memory", &T::usable_memory, "What the driver reports as total; decides what fits.")
          .between(1, 1e18),
      optional("memory_bandwidth", &T::memory_bandwidth, "Peak of the device memory.")
          .between(kSlowestRate, kFastestLink),
      detail::peak("fp32", &T::fp32, "Dense peak without tensor cores."),
      detail::peak("tf32", &T::tf32, "Dense peak, never with sparsity."),
      detail::peak("fp16", &T::fp16, "Dense peak, never with sparsity."),
      detail::peak("bf16", &T::bf16, "Dense peak, never with sparsity."),
      detail::peak("fp8", &T::fp8, "Dense peak, never with sparsity."),
      detail::peak("fp4", &T::fp4, "Dense peak, never with sparsity."),
      detail::peak("fp64", &T::fp64, "Dense peak."),
      optional("multiprocessors", &T::multiprocessors, "Streaming multiprocessors or compute units.").between(1, 1e6),
      optional("scaleup", &T::scaleup, "Bandwidth of a device inside its scale-up domain, one direction.")
          .between(kSlowestRate, kFastestLink),
      optional("scaleup_domain", &T::scaleup_domain, "Devices of the scale-up domain.").between(1, 1e6),
      detail::peak("achievable_bf16", &T::achievable_bf16, "Best measured dense matrix product."),
      optional("watts", &T::watts, "Power limit in watts.").between(0, 1e6),
      optional("source", &T::source, "Where the figures come from."),
      optional("notes", &T::notes, "What to know about them.")};
  static Result<void> check(const T& device, const Where& where) {
    if (device.memory && device.usable_memory && *device.usable_memory > *device.memory)
      return fail(where.at("usable_memory").text(), format_bytes(*device.usable_memory) + " is more than the memory",
                  "the memory is " + format_bytes(*device.memory));
    return {};
  }
};

template <> struct Described<LinkSpec> {
  using T = LinkSpec;
  static constexpr const char* name = "link";
  static constexpr const char* doc = "A link of a network tier.";
  static constexpr auto members = std::tuple{
      optional("bandwidth", &T::bandwidth, "One direction, per device. Left out = not known: what needs it refuses.")
          .between(kSlowestRate, kFastestLink),
      optional("latency", &T::latency, "Until the first byte arrives, through one switch.").between(0, kLongestTime),
      optional("efficiency", &T::efficiency,
               "Share of the bandwidth that large collectives achieve; 0 = the calibration's figure.")
          .between(0, 1)};
};

template <> struct Described<TierSpec> {
  using T = TierSpec;
  static constexpr const char* name = "tier";
  static constexpr const char* doc = "One level of the network.";
  static constexpr auto members = std::tuple{
      optional("name", &T::name, "Any name, for example node, leaf, spine."),
      required("fanout", &T::fanout, "Members of a group at this level; innermost: devices of a node.")
          .between(1, kMostDevices),
      required("link", &T::link, "The link that a device has at this level."),
      optional("fabric", &T::fabric, "How the members are joined."),
      optional("oversubscription", &T::oversubscription,
               "Capacity of the switches downwards over their capacity towards the next tier.")
          .between(0.01, 1000),
      optional("background_load", &T::background_load, "Share of the links that others use; below 1.").between(0, 1),
      optional("shape", &T::shape, "Dimensions of a torus; their product is `fanout`.").between(1, kMostDevices)};
  static Result<void> check(const T& tier, const Where& where) {
    if (tier.background_load >= 1)
      return fail(where.at("background_load").text(), "1 leaves nothing of the links", "a share below 1");
    if (tier.shape.empty()) return {};
    constexpr std::size_t kMostDimensions = 6;
    if (tier.shape.size() > kMostDimensions)
      return fail(where.at("shape").text(),
                  fmt::format("{} dimensions are more than {}", tier.shape.size(), kMostDimensions));
    if (tier.fabric != Fabric::torus)
      return fail(where.at("shape").text(), fmt::format("belongs to fabric torus, not to '{}'", name_of(tier.fabric)));
    double product = 1;
    for (const int extent : tier.shape) product *= extent;
    if (product != tier.fanout)
      return fail(where.at("shape").text(),
                  fmt::format("holds {:g} members, but the fanout is {}", product, tier.fanout));
    return {};
  }
};

template <> struct Described<ClusterSpec> {
  using T = ClusterSpec;
  static constexpr const char* name = "cluster";
  static constexpr const char* doc = "Devices and the network between them.";
  static constexpr auto members = std::tuple{
      optional("name", &T::name, "Any name."),
      required("device", &T::device, "The device, or the name of a device preset."),
      required("tiers", &T::tiers, "Levels of the network, innermost first; the product of fan-outs is the devices."),
      optional("devices_per_host", &T::devices_per_host,
               "Devices of one machine where the innermost tier joins several; divides its fanout.")
          .between(1, kMostDevices),
      optional("host_link", &T::host_link, "Device to host memory, one direction.").between(kSlowestRate, kFastestLink),
      optional("host_memory", &T::host_memory, "Host memory of a machine.").between(1, 1e18),
      optional("ranks_per_processor", &T::ranks_per_processor,
               "Ranks that share one processor: the device's figures are one rank's share.")
          .between(1, 1e4),
      optional("cost_per_device_hour", &T::cost_per_device_hour, "In any currency; the cost objective needs it.")
          .between(0, 1e9),
      optional("source", &T::source, "Where the figures come from."),
      optional("notes", &T::notes, "What to know about them.")};
  static Result<void> check(const T& cluster, const Where& where) {
    if (cluster.tiers.empty()) return fail(where.at("tiers").text(), "is empty", "at least the node's tier");
    if (cluster.devices_per_host && cluster.tiers.front().fanout % *cluster.devices_per_host != 0)
      return fail(where.at("devices_per_host").text(),
                  fmt::format("{} does not divide the {} devices of the innermost tier", *cluster.devices_per_host,
                              cluster.tiers.front().fanout));
    double devices = 1;
    for (const TierSpec& tier : cluster.tiers) devices *= tier.fanout;
    if (devices > kMostDevices)
      return fail(where.at("tiers").text(), fmt::format("{:g} devices are more than {}", devices, kMostDevices));
    return {};
  }
};

} // namespace foretrain
