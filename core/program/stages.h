#pragma once

#include <vector>

#include "core/spec/layout.h"
#include "core/spec/model.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// Layers of each model chunk in depth order (chunk · stages + stage), `pp · chunks` entries. Given lists are taken as
/// they are; an even split gives the remainder to the first chunks, since the last one has the head.
[[nodiscard]] std::vector<int> layers_per_chunk(const ModelSpec& model, const Layout& layout);

/// The same under a framework that counts embedding, final norm and head as layers (`ends_are_layers`): all of them are
/// split evenly, the remainder to the first chunks (Aleph-Alpha/scaling@78489292b
/// core/nn/parallel_module/pipeline_partitioning.py, pipe_partition_uniform). Where that leaves a chunk without layers:
/// as above.
[[nodiscard]] std::vector<int> layers_per_chunk(const ModelSpec& model, const Layout& layout,
                                                const Semantics& semantics);

} // namespace foretrain
