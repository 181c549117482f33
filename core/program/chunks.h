#pragma once

#include <vector>

#include "core/program/context.h"
#include "core/program/program.h"

namespace foretrain {

/// What a model chunk is made of, before its blocks are built: blocks with equal keys are equal.
struct BlockKey {
  BlockKind kind = BlockKind::layer;
  std::vector<LayerShape> shapes; ///< layer, mtp: the layers inside
  bool recomputed = false;
  bool holds_table = false; ///< mtp: has the stage's copy of the input table
  bool operator==(const BlockKey&) const = default;
};

struct ChunkPlan {
  std::vector<BlockKey> blocks;
  std::vector<int> layers; ///< first model layer of each block; -1 for the ends
};

/// The chunk at `depth` of the model: embedding first, MTP and head last, recomputation applied.
[[nodiscard]] ChunkPlan chunk_plan(const ModelSpec& model, const std::vector<LayerShape>& shapes, const Layout& layout,
                                   const std::vector<int>& layers_per_chunk, int depth);

[[nodiscard]] Block make_block(const LayerContext& context, const BlockKey& key);

} // namespace foretrain
