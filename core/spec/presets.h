#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/spec/cluster.h"
#include "core/spec/model.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// The folder of presets: data/ of the source tree or the installation. Passed explicitly; `main` finds it.
struct DataFolder {
  std::filesystem::path root;

  [[nodiscard]] std::vector<std::string> models() const; ///< names, sorted
  [[nodiscard]] std::vector<std::string> devices() const;
  [[nodiscard]] std::vector<std::string> clusters() const;
  [[nodiscard]] std::vector<std::string> semantics() const;

  /// Errors: unknown name (with the nearest), a file that does not read.
  [[nodiscard]] Result<ModelSpec> model(const std::string& name) const;
  [[nodiscard]] Result<DeviceSpec> device(const std::string& name) const;
  [[nodiscard]] Result<ClusterSpec> cluster(const std::string& name) const;
  [[nodiscard]] Result<Semantics> semantics(const std::string& name) const;
};

/// A preset's name, or a file: a ModelSpec or a Hugging Face config.json.
[[nodiscard]] Result<ModelSpec> load_model(const DataFolder& data, const std::string& name_or_file);
/// A preset's name or a file. `devices`: cut or grow the outermost tier to this many devices; 0 = as it stands.
[[nodiscard]] Result<ClusterSpec> load_cluster(const DataFolder& data, const std::string& name_or_file, int devices);
/// The cluster with its outer tiers resized to this many devices. Error: not a multiple of a node, more than known.
[[nodiscard]] Result<ClusterSpec> resized(ClusterSpec cluster, int devices);

} // namespace foretrain
