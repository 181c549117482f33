#pragma once

#include "core/base/describe.h"
#include "core/spec/model.h"

/// How a model is read and written. Included by files that do so, never by headers.
namespace foretrain {

template <> struct EnumNames<NormKind> {
  static constexpr std::array names = {std::pair{NormKind::rms, "rms"}, std::pair{NormKind::layer, "layer"}};
};
template <> struct EnumNames<QkNorm> {
  static constexpr std::array names = {std::pair{QkNorm::none, "none"}, std::pair{QkNorm::per_head, "per-head"},
                                       std::pair{QkNorm::full_width, "full-width"}};
};
template <> struct EnumNames<NormPlacement> {
  static constexpr std::array names = {std::pair{NormPlacement::before, "before"},
                                       std::pair{NormPlacement::after, "after"},
                                       std::pair{NormPlacement::around, "around"}};
};

inline constexpr double kMostWidth = 1e6; ///< of hidden sizes and heads' widths
inline constexpr double kMostFfn = 1e7;   ///< of feed-forwards
inline constexpr double kMostCount = 1e5; ///< of layers, heads, experts

template <> struct Described<LatentAttention> {
  using T = LatentAttention;
  static constexpr const char* name = "latent";
  static constexpr const char* doc = "Multi-head latent attention (MLA).";
  static constexpr auto members = std::tuple{
      optional("q_lora_rank", &T::q_lora_rank, "Rank of the query compression; absent: queries are projected directly.")
          .between(1, kMostWidth),
      required("kv_lora_rank", &T::kv_lora_rank, "Rank of the key and value compression.").between(1, kMostWidth),
      required("qk_nope_head_dim", &T::qk_nope_head_dim, "Width of a query or key head without position.")
          .between(0, kMostWidth),
      required("qk_rope_head_dim", &T::qk_rope_head_dim, "Width of the rotary part of a query or key head.")
          .between(0, kMostWidth),
      required("v_head_dim", &T::v_head_dim, "Width of a value head.").between(1, kMostWidth),
      optional("index_heads", &T::index_heads, "Heads of the sparse-attention indexer; 0 = none.")
          .between(0, kMostCount),
      optional("index_head_dim", &T::index_head_dim, "Width of an indexer head.").between(0, kMostWidth)};
};

template <> struct Described<MoeSpec> {
  using T = MoeSpec;
  static constexpr const char* name = "moe";
  static constexpr const char* doc = "Mixture of experts.";
  static constexpr auto members = std::tuple{
      required("experts", &T::experts, "Routed experts per layer.").between(1, kMostCount),
      required("top_k", &T::top_k, "Experts that a token visits; at most `experts`.").between(1, kMostCount),
      required("ffn", &T::ffn, "Width of one routed expert.").between(1, kMostFfn),
      optional("shared_ffn", &T::shared_ffn, "Total width of the shared experts; 0 = none.").between(0, kMostFfn),
      optional("shared_gate", &T::shared_gate, "The shared expert has a gate of `hidden` parameters."),
      optional("router_bias", &T::router_bias, "The router has a bias."),
      optional("correction_bias", &T::correction_bias, "The router has a balancing bias per expert."),
      optional("expert_bias", &T::expert_bias, "The experts have biases."),
      optional("first_dense", &T::first_dense, "Leading layers with a dense feed-forward.").between(0, kMostCount),
      optional("every", &T::every, "After the dense prefix, layer i is MoE when (i + 1) is a multiple of this.")
          .between(1, kMostCount),
      optional("dense_layers", &T::dense_layers, "Further layers with a dense feed-forward, by index from 0.")
          .between(0, kMostCount),
      optional("groups", &T::groups, "Expert groups of group-limited routing.").between(1, kMostCount),
      optional("top_groups", &T::top_groups, "Groups that a token may visit.").between(1, kMostCount)};
};

template <> struct Described<SlidingWindow> {
  using T = SlidingWindow;
  static constexpr const char* name = "window";
  static constexpr const char* doc = "Sliding-window attention.";
  static constexpr auto members =
      std::tuple{required("size", &T::size, "Keys that a query sees.").between(1, 1e8),
                 optional("full_every", &T::full_every, "Every so many layers one sees everything; 0 = none does.")
                     .between(0, kMostCount),
                 optional("full_layers", &T::full_layers, "Further layers that see everything, by index from 0.")
                     .between(0, kMostCount)};
};

template <> struct Described<DeltaNet> {
  using T = DeltaNet;
  static constexpr const char* name = "delta";
  static constexpr const char* doc = "Gated DeltaNet layers.";
  static constexpr auto members =
      std::tuple{required("key_heads", &T::key_heads, "Key heads.").between(1, kMostCount),
                 required("key_head_dim", &T::key_head_dim, "Width of a key head.").between(1, kMostWidth),
                 required("value_heads", &T::value_heads, "Value heads.").between(1, kMostCount),
                 required("value_head_dim", &T::value_head_dim, "Width of a value head.").between(1, kMostWidth),
                 required("conv_kernel", &T::conv_kernel, "Taps of the short convolution.").between(1, 1024)};
};

template <> struct Described<Mamba2> {
  using T = Mamba2;
  static constexpr const char* name = "mamba";
  static constexpr const char* doc = "Mamba-2 blocks.";
  static constexpr auto members =
      std::tuple{required("heads", &T::heads, "Heads.").between(1, kMostCount),
                 required("head_dim", &T::head_dim, "Width of a head.").between(1, kMostWidth),
                 required("groups", &T::groups, "Groups that share B and C.").between(1, kMostCount),
                 required("state", &T::state, "State per channel.").between(1, kMostWidth),
                 required("conv_kernel", &T::conv_kernel, "Taps of the short convolution.").between(1, 1024)};
};

template <> struct Described<ModelSpec> {
  using T = ModelSpec;
  static constexpr const char* name = "model";
  static constexpr const char* doc = "The shape of a decoder-only transformer, before any split.";
  static constexpr auto members = std::tuple{
      optional("name", &T::name, "Any name."),
      required("layers", &T::layers, "Layers, multi-token-prediction layers not counted.").between(1, kMostCount),
      required("hidden", &T::hidden, "Width of the residual stream.").between(1, kMostWidth),
      required("heads", &T::heads, "Query heads.").between(1, kMostCount),
      required("kv_heads", &T::kv_heads, "Key and value heads; divides `heads`.").between(1, kMostCount),
      required("head_dim", &T::head_dim, "Width of a head.").between(1, kMostWidth),
      required("ffn", &T::ffn, "Width of the dense feed-forward; 0 when no layer has one.").between(0, kMostFfn),
      optional("gated", &T::gated, "The feed-forward has three matrices (SwiGLU) instead of two."),
      required("vocab", &T::vocab, "Rows of the embedding table, before padding.").between(1, 1e8),
      optional("tied_embeddings", &T::tied_embeddings, "Input and output table are one."),
      optional("norm", &T::norm, "Kind of norm."),
      optional("norms_per_layer", &T::norms_per_layer, "Norms in a layer, query and key norms apart.").between(0, 16),
      optional("norm_placement", &T::norm_placement,
               "Where the norms of a layer stand: before each half, after it, or both."),
      optional("final_norm", &T::final_norm, "A norm before the head."),
      optional("embedding_norm", &T::embedding_norm, "A norm after the embedding."),
      optional("learned_positions", &T::learned_positions, "Rows of a learned position table; 0 = none.")
          .between(0, 1e8),
      optional("embedding_projection", &T::embedding_projection,
               "Width of the word embedding where it is projected to `hidden`; 0 = `hidden`.")
          .between(0, kMostWidth),
      optional("qkv_bias", &T::qkv_bias, "Bias of the query, key and value projections."),
      optional("out_bias", &T::out_bias, "Bias of the attention's output projection."),
      optional("mlp_bias", &T::mlp_bias, "Biases of the feed-forward."),
      optional("qk_norm", &T::qk_norm, "Norms of queries and keys."),
      optional("attention_sinks", &T::attention_sinks, "One learned logit per head."),
      optional("output_gate", &T::output_gate, "The attention output is gated by a second query-sized projection."),
      optional("parallel_block", &T::parallel_block, "Attention and feed-forward read the same input."),
      optional("scaled_embedding", &T::scaled_embedding, "The embedding is multiplied by a constant."),
      optional("attention_softcap", &T::attention_softcap,
               "Attention scores are capped by this times tanh; 0 = they are not.")
          .between(0, 1e6),
      optional("logit_softcap", &T::logit_softcap, "The logits are capped by this times tanh; 0 = they are not.")
          .between(0, 1e6),
      optional("latent", &T::latent, "Multi-head latent attention."),
      optional("moe", &T::moe, "Mixture of experts."),
      optional("window", &T::window, "Sliding-window attention."),
      optional("delta", &T::delta, "Gated DeltaNet layers."),
      optional("mamba", &T::mamba, "Mamba-2 blocks."),
      optional(
          "pattern", &T::pattern,
          "One letter per layer where token mixers differ: A attention, L latent, D gated delta, I lightning, M "
          "Mamba block alone, * attention block alone, - dense feed-forward alone, E MoE alone. Empty = all alike."),
      optional("mtp_layers", &T::mtp_layers, "Multi-token-prediction layers after the last.").between(0, 1000),
      optional("mtp_own_embeddings", &T::mtp_own_embeddings,
               "The checkpoint stores private embedding and head tables for them."),
      optional("maximum_positions", &T::maximum_positions, "Longest sequence the configuration names; 0 = not stated.")
          .between(0, 2e9),
      optional("notes", &T::notes, "What was left out."),
      optional("source", &T::source, "Where the numbers come from.")};

  static Result<void> check(const T& model, const Where& where) {
    Result<void> checked = check_model(model, where.file + ":" + where.pointer);
    if (!checked && checked.error().where.back() == ':') checked.error().where.pop_back();
    return checked;
  }
};

} // namespace foretrain
