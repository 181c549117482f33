#pragma once

#include <optional>
#include <vector>

#include "core/program/context.h"
#include "core/program/program.h"
#include "core/spec/model.h"

namespace foretrain {

/// The reason why this model's layers cannot be lowered (linear attention, state-space blocks …), or nothing.
[[nodiscard]] std::optional<Rejection> unsupported(const ModelSpec& model);

/// Consecutive layers in one block (one checkpoint spans them when recomputed).
[[nodiscard]] Block make_layers(const LayerContext& context, const std::vector<LayerShape>& shapes, bool recompute_all);
/// One layer of this shape. `recompute_all`: only the input is kept and the forward runs again inside the backward.
[[nodiscard]] Block make_layer(const LayerContext& context, const LayerShape& shape, bool recompute_all);
/// Token (and position) table; the first block of stage 0.
[[nodiscard]] Block make_embedding(const LayerContext& context);
/// Final norm, output table and loss; the last block of the last stage.
[[nodiscard]] Block make_head(const LayerContext& context);
/// Multi-token prediction, a layer for each depth: norms, projection, the layer, and its own pass through head and
/// loss. Each depth reads the state of the one before it, the first that of the model.
[[nodiscard]] Block make_mtp(const LayerContext& context, const std::vector<LayerShape>& shapes, bool holds_table);

} // namespace foretrain
