#include "core/spec/describe_cluster.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {
namespace {

/// {"preset": NAME, "devices": N}: a preset cut or grown to a number of devices.
struct ResizedPreset {
  std::string preset;
  int devices = 0;
  bool operator==(const ResizedPreset&) const = default;
};

} // namespace

template <> struct Described<ResizedPreset> {
  static constexpr const char* name = "cluster";
  static constexpr auto members =
      std::tuple{required("preset", &ResizedPreset::preset, "Name of the preset."),
                 required("devices", &ResizedPreset::devices, "How many devices.").between(1, kMostDevices)};
};

namespace {

Result<ClusterSpec> read_resized_preset(const Json& json, const Where& where, const DataFolder& data) {
  FORETRAIN_TRY(const ResizedPreset wanted, read_struct<ResizedPreset>(json, where));
  auto cluster = data.cluster(wanted.preset);
  if (!cluster) {
    cluster.error().where = where.at("preset").text();
    return cluster;
  }
  cluster = resized(std::move(*cluster), wanted.devices);
  if (!cluster) cluster.error().where = where.at("devices").text();
  return cluster;
}

} // namespace

Result<DeviceSpec> read_device(const Json& json, const Where& where) {
  return read_value<DeviceSpec>(json, where);
}

Result<ClusterSpec> read_cluster(const Json& json, const Where& where, const DataFolder& data) {
  if (json.is_object() && json.contains("preset")) return read_resized_preset(json, where, data);
  if (!json.is_object() || !json.contains("device")) return read_value<ClusterSpec>(json, where);
  const Json& named = json["device"];
  if (!named.is_string()) return read_value<ClusterSpec>(json, where);
  auto device = data.device(named.get<std::string>());
  if (!device) {
    device.error().where = where.at("device").text();
    return tl::unexpected<Error>(device.error());
  }
  Json whole = json;
  whole["device"] = write_struct(*device);
  return read_value<ClusterSpec>(whole, where);
}

Result<DeviceSpec> device_from(const Json& json, const std::string& file) {
  return read_device(json, Where{file, ""});
}
Result<ClusterSpec> cluster_from(const Json& json, const std::string& file, const DataFolder& data) {
  return read_cluster(json, Where{file, ""}, data);
}
Json to_json(const DeviceSpec& device) {
  return write_struct(device);
}
Json to_json(const ClusterSpec& cluster) {
  return write_struct(cluster);
}

Json device_schema() {
  return schema_of<DeviceSpec>();
}
Json cluster_schema() {
  Json schema = schema_of<ClusterSpec>();
  // A preset's name may stand for the device.
  Json& device = schema["properties"]["device"];
  device = Json{{"anyOf", Json::array({Json{{"type", "string"}}, device})},
                {"description", "The device, or the name of a device preset."}};
  return schema;
}

} // namespace foretrain
