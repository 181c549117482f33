#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"

namespace foretrain {

/// An accelerator. A figure that is not known is absent; whoever needs it refuses with its name.
struct DeviceSpec {
  std::string name;
  std::string vendor;
  std::string architecture;           ///< "Hopper", "Ampere", …: family for fallbacks
  std::optional<Bytes> memory;        ///< marketed size
  std::optional<Bytes> usable_memory; ///< what the driver reports as total; used for "fits" when present
  std::optional<BytesPerSecond> memory_bandwidth;
  std::optional<FlopPerSecond> fp32; ///< dense peaks, never with sparsity
  std::optional<FlopPerSecond> tf32;
  std::optional<FlopPerSecond> fp16;
  std::optional<FlopPerSecond> bf16;
  std::optional<FlopPerSecond> fp8;
  std::optional<FlopPerSecond> fp4;
  std::optional<FlopPerSecond> fp64;
  std::optional<int> multiprocessors;           ///< SMs or CUs
  std::optional<BytesPerSecond> scaleup;        ///< one direction, per device, inside its scale-up domain
  std::optional<int> scaleup_domain;            ///< devices in that domain
  std::optional<FlopPerSecond> achievable_bf16; ///< best measured dense matmul
  std::optional<double> watts;
  std::string source;
  std::string notes;
  bool operator==(const DeviceSpec&) const = default;
};

enum class Fabric {
  switched, ///< "switch": every port reaches every other at full rate (NVSwitch)
  mesh,     ///< a link per pair (xGMI, RoCE mesh): a pair gets 1/(n-1) of the port
  rail,     ///< one network plane per local index; crossing planes goes through the node's inner fabric
  fat_tree, ///< leaf and spine; `oversubscription` thins the uplinks
  torus,    ///< ring per dimension (ICI, NeuronLink)
};

struct LinkSpec {
  BytesPerSecond bandwidth; ///< one direction, per device; 0 = not known: `unknown_figures` names it
  Seconds latency{2e-6};    ///< first byte, through one switch
  double efficiency = 0;    ///< achieved share of the bandwidth by large collectives; 0 = the calibration's figure
  bool operator==(const LinkSpec&) const = default;
};

/// One level of the network.
struct TierSpec {
  std::string name;
  int fanout = 1; ///< children per group at this level; innermost: devices per node
  LinkSpec link;
  Fabric fabric = Fabric::switched;
  double oversubscription = 1; ///< down capacity / up capacity of this tier's switches towards the next tier
  double background_load = 0;  ///< share of this tier's links that others use, 0 … <1
  std::vector<int> shape;      ///< torus dimensions; empty otherwise
  bool operator==(const TierSpec&) const = default;
};

struct ClusterSpec {
  std::string name;
  DeviceSpec device;
  std::vector<TierSpec> tiers;                ///< innermost first; product of fan-outs = devices
  std::optional<int> devices_per_host;        ///< of one machine; absent: the innermost tier is one machine
  std::optional<BytesPerSecond> host_link;    ///< device to host memory, one direction
  std::optional<Bytes> host_memory;           ///< per node
  int ranks_per_processor = 1;                ///< ranks that share one processor (executor on CPU cores)
  std::optional<double> cost_per_device_hour; ///< in any currency; the cost objective needs it
  std::string source;
  std::string notes;
  bool operator==(const ClusterSpec&) const = default;
};

inline constexpr int kMostDevices = 1'000'000; ///< of a cluster

[[nodiscard]] int device_count(const ClusterSpec& cluster);
/// Devices of the innermost tier.
[[nodiscard]] int devices_per_node(const ClusterSpec& cluster);
/// Figures that any prediction needs and that are not known, by name ("device h20-96gb: memory_bandwidth", "tier rack:
/// link bandwidth"). Peaks per precision are asked for by whoever needs them.
[[nodiscard]] std::vector<std::string> unknown_figures(const ClusterSpec& cluster);

} // namespace foretrain
