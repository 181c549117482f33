#pragma once

#include "core/program/builder.h"

/// Expert parallelism: how tokens reach the ranks that hold their experts and come back (Megatron-Core
/// token_dispatcher). Experts fold over tp × cp × dp; without expert parallelism nothing moves.
namespace foretrain::expert {

/// Sizes of one MoE layer on one rank.
struct Sizes {
  std::int64_t tokens = 0;   ///< tokens routed by this rank (t_sp)
  std::int64_t sent = 0;     ///< token copies that leave the router: tokens · top_k, capacity applied
  std::int64_t received = 0; ///< rows that this rank's experts process, busiest rank under imbalance
  std::int64_t experts = 0;  ///< experts of this rank
  std::int64_t width = 0;    ///< expert ffn width of this rank (ffn / etp)
};
[[nodiscard]] Sizes sizes_of(const LayerContext& context);

/// Sends `rows` (sent × hidden) to the experts; the buffer that arrives (received × hidden). `name` makes buffers
/// unique.
int dispatch(BlockBuilder& b, int rows, const std::string& name);
/// The way back: received × hidden to sent × hidden.
int combine(BlockBuilder& b, int rows, const std::string& name);
/// Whether the host must wait for token counts before the dispatch (dropless all-to-all).
[[nodiscard]] bool needs_host_counts(const LayerContext& context);

} // namespace foretrain::expert
