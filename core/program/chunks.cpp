#include "core/program/chunks.h"

#include <algorithm>
#include <numeric>

#include "core/program/blocks.h"

namespace foretrain {
namespace {

/// Layers of one chunk: how many consecutive layers share a checkpoint, and how many from the start are recomputed.
struct Checkpoints {
  int span = 1;
  int recomputed = 0;
};

Checkpoints checkpoints_of(const RecomputeChoice& recompute, int layers) {
  switch (recompute.kind) {
  case RecomputeKind::none:
  case RecomputeKind::selective:
  case RecomputeKind::operators:
    return {1, 0};
  case RecomputeKind::full:
    break;
  }
  switch (recompute.method) {
  case RecomputeMethod::uniform:
    return {std::max(1, std::min(recompute.count.value_or(1), layers)), layers};
  case RecomputeMethod::block:
    return {1, std::min(recompute.count.value_or(layers), layers)};
  }
  return {1, 0};
}

} // namespace

ChunkPlan chunk_plan(const ModelSpec& model, const std::vector<LayerShape>& shapes, const Layout& layout,
                     const std::vector<int>& layers_per_chunk, int depth) {
  const auto at = static_cast<std::size_t>(depth);
  const int first = std::accumulate(layers_per_chunk.begin(), layers_per_chunk.begin() + depth, 0);
  const int count = layers_per_chunk[at];
  const Checkpoints checkpoints = checkpoints_of(layout.recompute, count);
  ChunkPlan plan;
  const auto add = [&plan](BlockKey key, int layer) {
    plan.blocks.push_back(std::move(key));
    plan.layers.push_back(layer);
  };
  if (depth == 0) add({BlockKind::embedding, {}, false, false}, -1);
  for (int done = 0; done < count;) {
    const bool recomputed = done < checkpoints.recomputed;
    const int span = recomputed ? std::min(checkpoints.span, count - done) : 1;
    BlockKey key{BlockKind::layer, {}, recomputed, false};
    for (int i = 0; i < span; ++i) key.shapes.push_back(shapes[static_cast<std::size_t>(first + done + i)]);
    add(std::move(key), first + done);
    done += span;
  }
  if (at + 1 == layers_per_chunk.size()) {
    // Across stages the last one holds a copy of the input table, once; a tied head has it already.
    const bool copies = layout.pp > 1 && !model.tied_embeddings;
    if (model.mtp_layers > 0) {
      const std::vector<LayerShape> depths(static_cast<std::size_t>(model.mtp_layers), mtp_shape(model));
      add({BlockKind::mtp, depths, false, copies}, model.layers);
    }
    add({BlockKind::head, {}, false, false}, -1);
  }
  return plan;
}

Block make_block(const LayerContext& context, const BlockKey& key) {
  switch (key.kind) {
  case BlockKind::embedding:
    return make_embedding(context);
  case BlockKind::layer:
    return make_layers(context, key.shapes, key.recomputed);
  case BlockKind::head:
    return make_head(context);
  case BlockKind::mtp:
    return make_mtp(context, key.shapes, key.holds_table);
  }
  return {};
}

} // namespace foretrain
