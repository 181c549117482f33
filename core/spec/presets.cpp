#include "core/spec/presets.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
    if (entry->path().extension() == ".json") names.push_back(entry->path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The file of a preset. Names are looked up in the folder's list, so that no text can lead out of it.
Result<fs::path> preset_file(const fs::path& root, const char* kind, const char* what, const std::string& name) {
  const fs::path folder = root / kind;
  const std::vector<std::string> names = names_in(folder);
  if (names.empty()) return fail_environment(folder.string(), "no presets here", "is this the data folder?");
  if (std::find(names.begin(), names.end(), name) == names.end())
    return fail(what, fmt::format("'{}' is unknown", name), hint_for(name, names));
  return folder / (name + ".json");
}

} // namespace

std::vector<std::string> DataFolder::models() const {
  return names_in(root / "models");
}
std::vector<std::string> DataFolder::devices() const {
  return names_in(root / "devices");
}
std::vector<std::string> DataFolder::clusters() const {
  return names_in(root / "clusters");
}
std::vector<std::string> DataFolder::semantics() const {
  return names_in(root / "semantics");
}

Result<ModelSpec> DataFolder::model(const std::string& name) const {
  FORETRAIN_TRY(const fs::path file, preset_file(root, "models", "model", name));
  FORETRAIN_TRY(const Json json, read_json_file(file));
  FORETRAIN_TRY(ModelSpec model, model_from(json, file.string()));
  model.name = name; // a config.json does not say what its model is called
  return model;
}

Result<DeviceSpec> DataFolder::device(const std::string& name) const {
  FORETRAIN_TRY(const fs::path file, preset_file(root, "devices", "device", name));
  FORETRAIN_TRY(const Json json, read_json_file(file));
  return device_from(json, file.string());
}

Result<ClusterSpec> DataFolder::cluster(const std::string& name) const {
  FORETRAIN_TRY(const fs::path file, preset_file(root, "clusters", "cluster", name));
  FORETRAIN_TRY(const Json json, read_json_file(file));
  return cluster_from(json, file.string(), *this);
}

Result<Semantics> DataFolder::semantics(const std::string& name) const {
  FORETRAIN_TRY(const fs::path file, preset_file(root, "semantics", "semantics", name));
  FORETRAIN_TRY(Json json, read_json_file(file));
  const auto base = json.is_object() ? json.find("base") : json.end();
  if (base == json.end()) return semantics_from(json, file.string());
  if (!base->is_string()) return fail(file.string() + ":/base", "is not the name of other semantics");
  // A variant states what differs from its base; sources are merged key by key.
  FORETRAIN_TRY(const fs::path base_file, preset_file(root, "semantics", "base", base->get<std::string>()));
  FORETRAIN_TRY(Json whole, read_json_file(base_file));
  if (!whole.is_object() || whole.contains("base"))
    return fail(file.string() + ":/base", "'" + base->get<std::string>() + "' is a variant itself");
  json.erase("base");
  whole.merge_patch(json);
  return semantics_from(whole, file.string());
}

Result<ModelSpec> load_model(const DataFolder& data, const std::string& name_or_file) {
  if (!looks_like_file(name_or_file)) return data.model(name_or_file);
  const fs::path file = name_or_file;
  FORETRAIN_TRY(const Json json, read_json_file(file));
  FORETRAIN_TRY(ModelSpec model, model_from(json, file.string()));
  if (model.name.empty()) {
    // "config.json" says nothing; the folder that holds it usually names the model.
    std::error_code ignored; // "./config.json" is in a folder too
    const fs::path folder = fs::absolute(file, ignored).lexically_normal().parent_path().filename();
    model.name = (file.stem() == "config" && !folder.empty() ? folder : file.stem()).string();
  }
  return model;
}

Result<ClusterSpec> load_cluster(const DataFolder& data, const std::string& name_or_file, int devices) {
  Result<ClusterSpec> cluster;
  if (looks_like_file(name_or_file)) {
    FORETRAIN_TRY(const Json json, read_json_file(name_or_file));
    cluster = cluster_from(json, name_or_file, data);
  } else {
    cluster = data.cluster(name_or_file);
  }
  if (!cluster || devices == 0) return cluster;
  return resized(std::move(*cluster), devices);
}

} // namespace foretrain
