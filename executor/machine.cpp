#include "executor/machine.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace foretrain {
namespace {

namespace fs = std::filesystem;

struct Processor {
  std::string name;
  double mhz = 0;
  int fp32_per_cycle = 8; ///< multiply and add counted apart; two 128-bit units
};

/// Of the first processor that the system lists.
Processor processor() {
  Processor found;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      if (line.empty() && !found.name.empty()) break;
      continue;
    }
    const std::string value = line.substr(colon + 2);
    if (line.rfind("model name", 0) == 0) found.name = value;
    if (line.rfind("cpu MHz", 0) == 0) found.mhz = std::strtod(value.c_str(), nullptr);
    if (line.rfind("flags", 0) != 0) continue;
    const std::string flags = " " + value + " ";
    if (flags.find(" avx2 ") != std::string::npos && flags.find(" fma ") != std::string::npos)
      found.fp32_per_cycle = 32;
    if (flags.find(" avx512f ") != std::string::npos) found.fp32_per_cycle = 64;
  }
  return found;
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

int numa_nodes() {
  int count = 0;
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator("/sys/devices/system/node", problem)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) == 0 && name.size() > 4 && name[4] >= '0' && name[4] <= '9') ++count;
  }
  return count;
}

/// Interfaces that are up, with their rate where the driver says one (virtual ones do not).
Json interfaces() {
  Json list = Json::array();
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator("/sys/class/net", problem)) {
    const std::string name = entry.path().filename().string();
    if (name == "lo" || first_line(entry.path() / "operstate") == "down") continue;
    Json one{{"name", name}};
    const long speed = std::strtol(first_line(entry.path() / "speed").c_str(), nullptr, 10);
    if (speed > 0) one["megabits_per_s"] = speed;
    list.push_back(std::move(one));
  }
  return list;
}

Json gpus() {
  Json list = Json::array();
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", problem)) {
    std::ifstream in(entry.path() / "information");
    for (std::string line; std::getline(in, line);)
      if (line.rfind("Model:", 0) == 0) list.push_back(line.substr(line.find_first_not_of(" \t", 6)));
  }
  return list;
}

} // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

Json describe_machine() {
  Json json = Json::object();
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) json["host"] = std::string(host.data());
  const Processor found = processor();
  if (!found.name.empty()) json["processor"] = found.name;
  if (found.mhz > 0) json["megahertz"] = found.mhz;
  json["fp32_per_cycle"] = found.fp32_per_cycle;
  json["cores"] = usable_cores();
  if (const int nodes = numa_nodes(); nodes > 0) json["numa_nodes"] = nodes;
  struct sysinfo memory {};
  if (::sysinfo(&memory) == 0) json["memory_bytes"] = static_cast<std::int64_t>(memory.totalram) * memory.mem_unit;
  json["interfaces"] = interfaces();
  if (Json found_gpus = gpus(); !found_gpus.empty()) json["gpus"] = std::move(found_gpus);
  utsname system{};
  if (::uname(&system) == 0) json["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  return json;
}

} // namespace foretrain
