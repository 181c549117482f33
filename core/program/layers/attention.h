#pragma once

#include <array>
#include <memory>

#include "core/program/builder.h"
#include "core/program/layers/half.h"

namespace foretrain::layers {

/// Widths of softmax attention on one rank, whatever makes queries, keys and values (plain or latent projections).
struct AttentionWidths {
  int heads = 0; ///< query heads of this rank, before the all-to-all of Ulysses
  int kv_heads = 0;
  int qk_dim = 0;
  int v_dim = 0;
  int window = 0;
};

/// Buffers of the attention core.
struct AttentionCore {
  AttentionWidths widths;
  int q = -1;
  int k = -1;
  int v = -1;
  int out = -1;           ///< input of the output projection, this rank's tokens and heads
  int statistics = -1;    ///< log-sum-exp, fp32
  int probabilities = -1; ///< unfused attention only
  int pre_exchange =
      -1; ///< Ulysses: output before the all-to-all, where the semantics keep it; else in batch-first order
};

[[nodiscard]] AttentionCore declare_core(BlockBuilder& b, const AttentionWidths& widths);
/// Emits attention with its context-parallel transfers, in the builder's current pass (forward or recompute).
void core_forward(BlockBuilder& b, const AttentionCore& core);
/// dQ, dK, dV from dOut; returns their buffers in order.
[[nodiscard]] std::array<int, 3> core_backward(BlockBuilder& b, const AttentionCore& core, int grad_out);

/// Emits the core again inside the backward where a selective recomputation covers it; the core whose statistics and
/// output the backward reads from then on. The output projection's input stays saved: its weight gradient needs it.
[[nodiscard]] AttentionCore recompute_core(BlockBuilder& b, const AttentionCore& core);

/// Grouped-query (and multi-head) attention; `window` as in LayerShape, `reduces` as in half.h.
[[nodiscard]] std::unique_ptr<Half> make_attention(int window, bool reduces);
/// Multi-head latent attention.
[[nodiscard]] std::unique_ptr<Half> make_latent_attention(int window);

} // namespace foretrain::layers
