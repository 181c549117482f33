#include "core/program/stages.h"

namespace foretrain {
namespace {

/// `items` over the chunks, what is left over to the first ones.
std::vector<int> even(int items, const Layout& layout) {
  const int chunks = layout.pp * layout.schedule.chunks;
  std::vector<int> parts(static_cast<std::size_t>(chunks), items / chunks);
  for (int i = 0; i < items % chunks; ++i) ++parts[static_cast<std::size_t>(i)];
  return parts;
}

} // namespace

std::vector<int> layers_per_chunk(const ModelSpec& model, const Layout& layout) {
  return layout.layers_per_stage.empty() ? even(model.layers, layout) : layout.layers_per_stage;
}

std::vector<int> layers_per_chunk(const ModelSpec& model, const Layout& layout, const Semantics& semantics) {
  constexpr int kEmbedding = 1;
  constexpr int kNormAndHead = 2;
  if (semantics.ends_are_layers && layout.pp > 1 && layout.layers_per_stage.empty()) {
    std::vector<int> layers = even(model.layers + kEmbedding + kNormAndHead, layout);
    layers.front() -= kEmbedding;
    layers.back() -= kNormAndHead;
    if (layers.front() > 0 && layers.back() > 0) return layers;
  }
  return layers_per_chunk(model, layout);
}

} // namespace foretrain
