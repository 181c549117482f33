#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace foretrain {

enum class NormKind {
  rms,   ///< weight only: h parameters
  layer, ///< weight and bias: 2h parameters
};

/// Norms of queries and keys before the rotary embedding, of the same kind as the model's others: LayerNorm has a bias
/// for each weight.
enum class QkNorm {
  none,
  per_head,   ///< over each head: one weight of head_dim for queries, one for keys
  full_width, ///< over all heads: (heads + kv_heads) * head_dim weights
};

/// Where the norms of a layer stand.
enum class NormPlacement {
  before, ///< before each half (GPT-2 and most models since)
  after,  ///< after each half, before its sum with the residual stream (OLMo 2)
  around, ///< before and after each half (Gemma 2 and 3): four norms
};

/// What mixes tokens in a layer.
enum class Mixer {
  attention,   ///< softmax attention, grouped query (multi-head when kv_heads = heads)
  latent,      ///< multi-head latent attention (MLA); needs `ModelSpec::latent`
  gated_delta, ///< gated DeltaNet (Qwen3-Next); needs `ModelSpec::delta`
  lightning,   ///< lightning (linear) attention (MiniMax-Text)
  mamba2,      ///< Mamba-2 block; needs `ModelSpec::mamba`
  none,        ///< a block that is a feed-forward alone (Nemotron-H)
};

enum class FeedForward { dense, moe, none };

/// Multi-head latent attention, DeepSeek-V2 (arXiv:2405.04434) section 2.1.
struct LatentAttention {
  std::optional<int> q_lora_rank; ///< absent: queries are projected directly
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;
  int index_heads = 0;    ///< sparse-attention indexer heads (DSA); 0 = none
  int index_head_dim = 0; ///< width of an indexer head
  bool operator==(const LatentAttention&) const = default;
};

struct MoeSpec {
  int experts = 0;               ///< routed experts per layer
  int top_k = 0;                 ///< experts that a token visits
  int ffn = 0;                   ///< width of one routed expert
  int shared_ffn = 0;            ///< total width of the shared experts; 0 = none
  bool shared_gate = false;      ///< h parameters that gate the shared expert (Qwen2-MoE)
  bool router_bias = false;      ///< bias in the router's linear layer (gpt-oss)
  bool correction_bias = false;  ///< auxiliary-loss-free balancing bias, `experts` parameters (DeepSeek-V3)
  bool expert_bias = false;      ///< biases inside the experts (gpt-oss)
  int first_dense = 0;           ///< leading layers with a dense feed-forward
  int every = 1;                 ///< after the dense prefix, layer i is MoE iff (i + 1) % every == 0
  std::vector<int> dense_layers; ///< further layers with a dense feed-forward, by index
  int groups = 1;                ///< expert groups of group-limited routing
  int top_groups = 1;            ///< groups a token may visit
  bool operator==(const MoeSpec&) const = default;
};

/// Sliding-window attention: a query sees `size` keys. Every `full_every`-th layer sees everything (0: none does).
struct SlidingWindow {
  int size = 0;
  int full_every = 0;
  std::vector<int> full_layers; ///< further layers that see everything, by index
  bool operator==(const SlidingWindow&) const = default;
};

/// Gated DeltaNet, Qwen3-Next. Parameters exact, see docs/formulas.md.
struct DeltaNet {
  int key_heads = 0;
  int key_head_dim = 0;
  int value_heads = 0;
  int value_head_dim = 0;
  int conv_kernel = 0;
  bool operator==(const DeltaNet&) const = default;
};

/// Mamba-2 block, Nemotron-H.
struct Mamba2 {
  int heads = 0;
  int head_dim = 0;
  int groups = 0;
  int state = 0;
  int conv_kernel = 0;
  bool operator==(const Mamba2&) const = default;
};

/// The shape of a decoder-only transformer. All widths are of the whole model, before any split.
struct ModelSpec {
  std::string name;
  int layers = 0;
  int hidden = 0;
  int heads = 0;     ///< query heads
  int kv_heads = 0;  ///< key and value heads; divides `heads`
  int head_dim = 0;  ///< may differ from hidden / heads
  int ffn = 0;       ///< width of the dense feed-forward; 0 when no layer has one
  bool gated = true; ///< three matrices (SwiGLU, GeGLU) instead of two
  int vocab = 0;     ///< rows of the embedding table, before padding for tensor parallelism
  bool tied_embeddings = false;
  NormKind norm = NormKind::rms;
  int norms_per_layer = 2; ///< 1: parallel halves that share a norm, or a block of one half
  NormPlacement norm_placement = NormPlacement::before;
  bool final_norm = true;
  bool embedding_norm = false;  ///< a norm after the embedding (BLOOM)
  int learned_positions = 0;    ///< rows of a learned position table; 0 = rotary, ALiBi or none
  int embedding_projection = 0; ///< width of the word embedding when it is projected to hidden (OPT-350M); 0 = hidden
  bool qkv_bias = false;
  bool out_bias = false; ///< bias of the attention output projection
  bool mlp_bias = false;
  QkNorm qk_norm = QkNorm::none;
  bool attention_sinks = false;  ///< one learned logit per head (gpt-oss)
  bool output_gate = false;      ///< attention output gated by a second query-sized projection (Qwen3-Next)
  bool parallel_block = false;   ///< attention and feed-forward read the same input (Falcon, GPT-NeoX)
  bool scaled_embedding = false; ///< the embedding is multiplied by a constant (Gemma)
  double attention_softcap = 0;  ///< scores become cap · tanh(score / cap) (Gemma 2); 0 = they do not
  double logit_softcap = 0;      ///< the same of the logits
  std::optional<LatentAttention> latent;
  std::optional<MoeSpec> moe;
  std::optional<SlidingWindow> window;
  std::optional<DeltaNet> delta;
  std::optional<Mamba2> mamba;
  /// One letter per layer when the token mixers differ; empty = all alike. `A` attention, `L` latent, `D` gated delta,
  /// `I` lightning, `M` mamba block alone, `*` attention block alone, `-` dense feed-forward alone, `E` MoE alone.
  std::string pattern;
  int mtp_layers = 0;              ///< multi-token-prediction layers after the last
  bool mtp_own_embeddings = false; ///< the checkpoint stores private copies of embedding and head for them
  int maximum_positions = 0;       ///< longest sequence the configuration names; 0 = not stated
  std::vector<std::string> notes;  ///< what a reader left out, for example "vision tower not counted"
  std::string source;              ///< where the numbers come from: a published configuration or paper
  bool operator==(const ModelSpec&) const = default;
};

/// What one layer is made of; equal shapes cost the same.
struct LayerShape {
  Mixer mixer = Mixer::attention;
  FeedForward feed_forward = FeedForward::dense;
  int window = 0; ///< keys a query sees; 0 = all before it
  bool operator==(const LayerShape&) const = default;
};

/// Models above this are refused: 18 bytes of state per parameter still fit int64 with room to add up.
inline constexpr std::int64_t kMaximumParameters = 10'000'000'000'000'000;
inline constexpr int kMaximumLayers = 1'000'000;

/// What the widths must satisfy together: positive sizes, kv heads that divide heads, a pattern as long as the model,
/// experts where a layer is MoE, at most `kMaximumParameters`. `where` stands before the JSON pointer in errors.
[[nodiscard]] Result<void> check_model(const ModelSpec& model, const std::string& where);

/// One shape per layer, in order, MTP layers excluded.
[[nodiscard]] std::vector<LayerShape> layer_shapes(const ModelSpec& model);

/// The shape of a multi-token-prediction layer: that of the last layer.
[[nodiscard]] LayerShape mtp_shape(const ModelSpec& model);

/// Parameters by group. All counts are of the whole model; a count past int64 (9.2e18) stays at its maximum.
struct ParameterCount {
  std::int64_t total = 0;  ///< every parameter once (a tied table once), MTP excluded
  std::int64_t active = 0; ///< parameters a token touches: top_k instead of all experts; embeddings counted
  std::int64_t active_no_input_embedding = 0; ///< as above without the input table (a tied table stays: it is the head)
  std::int64_t embedding = 0;                 ///< input table, positions and embedding norm
  std::int64_t head = 0;                      ///< output table; 0 when tied
  std::int64_t mtp = 0;                       ///< multi-token-prediction layers, private tables included where stored
  bool operator==(const ParameterCount&) const = default;
};

/// Formulas in docs/formulas.md.
[[nodiscard]] ParameterCount count_parameters(const ModelSpec& model);

/// Parameters of one layer of this shape; with `active`, top_k experts are counted instead of all.
[[nodiscard]] std::int64_t layer_parameters(const ModelSpec& model, const LayerShape& shape, bool active);

} // namespace foretrain
