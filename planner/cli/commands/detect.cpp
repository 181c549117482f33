#include <algorithm>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "core/spec/io.h"
#include "planner/cli/child.h"
#include "planner/cli/commands/commands.h"

namespace foretrain::cli {
namespace {

namespace fs = std::filesystem;

/// What foretrain-run says of the machine; it knows the devices that LibTorch can use.
Result<Json> described() {
  FORETRAIN_TRY(const fs::path program, executor_program());
  const fs::path file = fs::temp_directory_path() / fmt::format("foretrain-detect-{}.json", ::getpid());
  FORETRAIN_TRY(const int code, run_child(program, {"--describe", file.string()}, {true, nullptr}));
  auto json = read_json_file(file);
  std::error_code ignored;
  fs::remove(file, ignored);
  if (code != kDone) return fail_environment(program.string(), fmt::format("ended with code {}", code));
  return json;
}

/// "Intel(R) Xeon(R) @ 2.60GHz" -> "intel-r-xeon-r-2-60ghz".
std::string slug_of(const std::string& text) {
  std::string slug;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte))
      slug += static_cast<char>(std::tolower(byte));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "cpu" : slug;
}

/// A rank's share of the processors, as a device: rates estimated from clock and vector width, to be measured.
DeviceSpec device_of(const Json& machine, int ranks) {
  constexpr double kUnknownClock = 2.5e9;
  constexpr double kChannelRate = 20e9; ///< B/s of memory per core while all are busy: the order of magnitude
  const int cores = std::max(1, machine.value("cores", 1));
  const double share = static_cast<double>(cores) / ranks;
  const double clock = machine.value("megahertz", 0.0) > 0 ? machine["megahertz"].get<double>() * 1e6 : kUnknownClock;
  DeviceSpec device;
  device.name = fmt::format("{}-{}c-{}r", slug_of(machine.value("processor", std::string("cpu"))), cores, ranks);
  device.vendor = "host processor";
  device.architecture = "cpu";
  device.memory = Bytes(machine.value("memory_bytes", std::int64_t{1} << 30) / ranks);
  device.memory_bandwidth = BytesPerSecond(kChannelRate * share);
  const double fp32 = clock * machine.value("fp32_per_cycle", 8) * share;
  device.fp32 = FlopPerSecond(fp32);
  device.fp64 = FlopPerSecond(fp32 / 2);
  device.bf16 = device.fp32;
  device.source = "detected: clock, vector width and core count of this machine; not measured";
  device.notes = "one rank's share of the cores; bf16 runs at the rate of fp32";
  return device;
}

ClusterSpec cluster_of(const Json& machine, int ranks) {
  ClusterSpec cluster;
  cluster.name = machine.value("host", std::string("here"));
  cluster.device = device_of(machine, ranks);
  TierSpec node;
  node.name = "node";
  node.fanout = ranks;
  node.link = {BytesPerSecond(4e9), Seconds(20e-6), 0}; // through the loopback interface: the order of magnitude
  cluster.tiers = {node};
  cluster.host_memory = Bytes(machine.value("memory_bytes", std::int64_t{1} << 30));
  cluster.ranks_per_processor = std::max(1, ranks / std::max(1, machine.value("cores", 1)));
  cluster.source = "foretrain detect";
  cluster.notes = machine.dump();
  return cluster;
}

} // namespace

int run_detect(const Context&, const DetectOptions& options) {
  constexpr int kMostRanks = 1024;
  if (options.ranks < 0 || options.ranks > kMostRanks)
    return complain({Error::Kind::input, fmt::format("{} is not a number of ranks", options.ranks), "--ranks",
                     fmt::format("0 to {}", kMostRanks)});
  const auto machine = described();
  if (!machine) return complain(machine.error());
  const int ranks = options.ranks > 0 ? options.ranks : std::max(1, machine->value("cores", 1));
  const std::string text = to_json(cluster_of(*machine, ranks)).dump(2) + "\n";
  if (options.out.empty()) return print_and(text, kDone);
  if (const auto written = write_text_file(options.out, text); !written) return complain(written.error());
  return options.json ? print_and(text, kDone) : kDone;
}

} // namespace foretrain::cli
