#include "core/spec/framework_kernels.h"

#include <algorithm>
#include <cctype>

#include "core/base/json.h"

namespace foretrain {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The entry of `table` for a device, else for its architecture, else 1.
Result<double> factor(const Json& table, const DeviceSpec& device, const std::string& where) {
  for (const std::string& name : {device.name, lower(device.architecture)}) {
    const auto found = table.find(name);
    if (found == table.end()) continue;
    if (!found->is_number() || !(found->get<double>() > 0)) return fail(where + "/" + name, "is not a positive number");
    return found->get<double>();
  }
  return 1.0;
}

/// Speed of a generation of attention kernels relative to the one that the device was calibrated with.
Result<double> speed_of(const Json& file, const std::string& generation, const DeviceSpec& device,
                        const std::string& where) {
  const Json::json_pointer at("/attention/" + generation);
  if (!file.contains(at) || !file.at(at).is_object())
    return fail(where + at.to_string(), "'" + generation + "' is no listed generation of attention kernels");
  return factor(file.at(at), device, where + at.to_string());
}

Result<void> set_attention(Calibration& calibration, const Json& file, const std::string& generation,
                           const DeviceSpec& device, const std::string& where) {
  FORETRAIN_TRY(const double speed, speed_of(file, generation, device, where));
  for (AttentionPoint& point : calibration.attention.heads) {
    point.forward *= speed;
    point.backward *= speed;
  }
  return {};
}

/// Products and attention at the clock that the device keeps in a training step.
void slow_down(Calibration& calibration, double speed) {
  calibration.gemm.efficiency *= speed;
  if (calibration.gemm.fp8) *calibration.gemm.fp8 *= speed;
  if (calibration.gemm.fp4) *calibration.gemm.fp4 *= speed;
  for (AttentionPoint& point : calibration.attention.heads) {
    point.forward *= speed;
    point.backward *= speed;
  }
}

} // namespace

Result<OnDevice> on_device(const Semantics& semantics, const Calibration& calibration, const DeviceSpec& device,
                           const std::filesystem::path& data) {
  const std::filesystem::path path = data / "kernels.json";
  FORETRAIN_TRY(const Json file, read_json_file(path));
  OnDevice result{semantics, calibration};
  if (const auto hosts = file.find("launch_time"); hosts != file.end()) {
    FORETRAIN_TRY(const double time, factor(*hosts, device, path.string() + ":/launch_time"));
    result.semantics.host_per_layer = semantics.host_per_layer * time;
  }
  if (const auto clocks = file.find("training_clock"); clocks != file.end()) {
    FORETRAIN_TRY(const double speed, factor(*clocks, device, path.string() + ":/training_clock"));
    slow_down(result.calibration, speed);
  }
  FORETRAIN_TRY(result.calibration.attention.flash_2, speed_of(file, "flash-2", device, path.string() + ":"));
  const Json::json_pointer own("/frameworks/" + semantics.name);
  if (!file.contains(own)) return result;
  const Json& entry = file.at(own);
  if (const auto generation = entry.find("attention"); generation != entry.end() && generation->is_string()) {
    const auto done =
        set_attention(result.calibration, file, generation->get<std::string>(), device, path.string() + ":");
    if (!done) return tl::unexpected<Error>(done.error());
  }
  const Json* traffic = &entry; // of the family, where a variant of a framework names it
  if (const auto family = entry.find("as"); family != entry.end() && family->is_string()) {
    const Json::json_pointer named("/frameworks/" + family->get<std::string>());
    if (!file.contains(named)) return fail(path.string() + ":" + own.to_string() + "/as", "names no listed framework");
    traffic = &file.at(named);
  }
  if (const auto passes = traffic->find("streaming"); passes != traffic->end()) {
    if (!passes->is_number() || !(passes->get<double>() >= 1))
      return fail(path.string() + ":" + own.to_string() + "/streaming", "is not a number of at least 1");
    result.calibration.memory.streaming = passes->get<double>();
  }
  return result;
}

} // namespace foretrain
