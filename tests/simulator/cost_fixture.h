#pragma once

#include <gtest/gtest.h>

#include "simulator/cost.h"
#include "tests/support/places.h"

/// Devices and clusters for the tests of costs. Figures of the devices are those of data/devices.
namespace foretrain::cost_test {

inline DeviceSpec device(const std::string& name, const std::string& architecture, double bf16_tflops,
                         double memory_gbps, double scaleup_gbps, int processors) {
  DeviceSpec spec;
  spec.name = name;
  spec.architecture = architecture;
  spec.bf16 = FlopPerSecond(bf16_tflops * 1e12);
  spec.fp8 = FlopPerSecond(2 * bf16_tflops * 1e12);
  spec.memory_bandwidth = BytesPerSecond(memory_gbps * 1e9);
  spec.scaleup = BytesPerSecond(scaleup_gbps * 1e9);
  spec.multiprocessors = processors;
  return spec;
}
inline DeviceSpec a100() {
  return device("a100-sxm-80gb", "Ampere", 312, 2039, 300, 108);
}
inline DeviceSpec h100() {
  return device("h100-sxm-80gb", "Hopper", 989, 3350, 450, 132);
}
inline DeviceSpec h200() {
  return device("h200-sxm-141gb", "Hopper", 989, 4800, 450, 132);
}
inline DeviceSpec b200() {
  return device("b200-sxm-180gb", "Blackwell", 2250, 8000, 900, 148);
}

inline TierSpec tier(const char* name, int fanout, double gbps, double latency_us, Fabric fabric) {
  TierSpec spec;
  spec.name = name;
  spec.fanout = fanout;
  spec.link.bandwidth = BytesPerSecond(gbps * 1e9);
  spec.link.latency = Seconds(latency_us * 1e-6);
  spec.fabric = fabric;
  return spec;
}

/// Nodes of eight behind one rail network.
inline ClusterSpec cluster(const DeviceSpec& device, int nodes, double network_gbps = 50, double latency_us = 5) {
  ClusterSpec spec;
  spec.name = "test";
  spec.device = device;
  spec.tiers = {tier("node", 8, device.scaleup->value / 1e9, 2, Fabric::switched),
                tier("leaf", nodes, network_gbps, latency_us, Fabric::rail)};
  spec.host_link = BytesPerSecond(63e9);
  return spec;
}

inline Calibration calibration(const DeviceSpec& device) {
  const auto loaded = load_calibration(test::source_folder() / "data", device);
  EXPECT_TRUE(loaded) << (loaded ? "" : to_string(loaded.error()));
  return loaded ? *loaded : Calibration{};
}

inline CostModel model(const ClusterSpec& spec, const CostNeeds& needs = {}) {
  auto made = CostModel::make(spec, calibration(spec.device), needs);
  EXPECT_TRUE(made) << (made ? "" : to_string(made.error()));
  return *made;
}

inline GroupShape shape(int per_node, int nodes = 1, int pods = 1) {
  GroupShape group;
  group.size = per_node * nodes * pods;
  group.per_tier = {per_node, nodes, pods, 1, 1, 1};
  return group;
}

/// Bus bandwidth in GB/s as nccl-tests reports it (nccl-tests doc/PERFORMANCE.md).
inline double bus_bandwidth(const CostModel& costs, Collective kind, const GroupShape& group, std::int64_t bytes) {
  const double n = group.size;
  const double factor = kind == Collective::all_reduce ? 2 * (n - 1) / n : (n - 1) / n;
  return static_cast<double>(bytes) * factor / costs.collective(kind, group, DType::bf16, Bytes(bytes)).seconds / 1e9;
}

} // namespace foretrain::cost_test
