// A program outside the project: finds a model and a cluster among the installed presets.
#include <cstdio>

#include "core/spec/presets.h"

int main() {
  const foretrain::DataFolder data{FORETRAIN_DATA};
  const auto model = data.model("llama3-8b");
  const auto cluster = foretrain::load_cluster(data, "dgx-h100", 8);
  if (!model || !cluster) {
    std::fprintf(stderr, "%s\n", to_string(model ? cluster.error() : model.error()).c_str());
    return 1;
  }
  std::printf("%s: %lld parameters, %d x %s\n", model->name.c_str(),
              static_cast<long long>(foretrain::count_parameters(*model).total), foretrain::device_count(*cluster),
              cluster->device.name.c_str());
  return 0;
}
