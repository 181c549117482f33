#pragma once

#include <vector>

#include "core/spec/layout.h"
#include "core/spec/model.h"

namespace foretrain {

/// Layers of each model chunk in depth order (chunk · stages + stage), `pp · chunks` entries. Given lists are taken as
/// they are; an even split gives the remainder to the first chunks, since the last one has the head.
[[nodiscard]] std::vector<int> layers_per_chunk(const ModelSpec& model, const Layout& layout);

} // namespace foretrain
