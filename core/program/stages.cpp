#include "core/program/stages.h"

namespace foretrain {

std::vector<int> layers_per_chunk(const ModelSpec& model, const Layout& layout) {
  if (!layout.layers_per_stage.empty()) return layout.layers_per_stage;
  const int chunks = layout.pp * layout.schedule.chunks;
  std::vector<int> layers(static_cast<std::size_t>(chunks), model.layers / chunks);
  const int rest = model.layers % chunks;
  for (int i = 0; i < rest; ++i) ++layers[static_cast<std::size_t>(i)];
  return layers;
}

} // namespace foretrain
