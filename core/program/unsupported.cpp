#include <fmt/format.h>

#include "core/program/blocks.h"

namespace foretrain {
namespace {

/// What of a layer has no formula; nothing when all has.
const char* without_formula(const ModelSpec& model, const LayerShape& shape) {
  switch (shape.mixer) {
  case Mixer::gated_delta:
    return "gated DeltaNet layers";
  case Mixer::lightning:
    return "lightning attention layers";
  case Mixer::mamba2:
    return "Mamba-2 blocks";
  case Mixer::none:
    return "layers without a token mixer";
  case Mixer::attention:
  case Mixer::latent:
    break;
  }
  if (shape.feed_forward == FeedForward::none) return "layers without a feed-forward";
  const int norms = model.norm_placement == NormPlacement::around ? 4 : 2;
  const bool shared = model.parallel_block && model.norms_per_layer == 1;
  if (model.norms_per_layer != norms && !shared) return "another number of norms than its halves need";
  if (model.embedding_projection > 0 && model.embedding_projection != model.hidden) return "a projected embedding";
  if (model.latent && model.latent->index_heads > 0) return "a sparse-attention indexer";
  return nullptr;
}

} // namespace

std::optional<Rejection> unsupported(const ModelSpec& model) {
  const char* what = nullptr;
  int modelled = 0;
  for (const LayerShape& shape : layer_shapes(model)) {
    const char* lacking = without_formula(model, shape);
    if (!lacking)
      ++modelled;
    else if (!what)
      what = lacking;
  }
  if (!what) return std::nullopt;
  Rejection rejection;
  rejection.rule = "model-not-modelled";
  rejection.reason = fmt::format(
      "{} has {}: its parameters are counted, but no memory or time formula is known here; {} of {} layers have one",
      model.name, what, modelled, model.layers);
  rejection.needed = model.layers;
  rejection.available = modelled;
  return rejection;
}

} // namespace foretrain
