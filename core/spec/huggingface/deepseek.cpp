#include <algorithm>

#include <fmt/format.h>

#include "core/spec/huggingface/families.h"

// Class defaults: huggingface/transformers, src/transformers/models/<architecture>/configuration_<architecture>.py.
// Multi-head latent attention: DeepSeek-V2 (arXiv:2405.04434) section 2.1.
namespace foretrain::huggingface {
namespace {

struct LatentDefaults {
  int q_lora = 1536;
  int kv_lora = 512;
  int nope = 128;
  int rope = 64;
  int value = 128;
};

/// `q_lora_rank` null means queries without compression; `num_key_value_heads` and `head_dim` have no effect.
void read_latent(Config& config, ModelSpec& model, const LatentDefaults& defaults) {
  LatentAttention mla;
  mla.q_lora_rank = config.maybe_number({"q_lora_rank"}, 1);
  if (!mla.q_lora_rank && !config.is_null("q_lora_rank")) mla.q_lora_rank = defaults.q_lora;
  mla.kv_lora_rank = config.number({"kv_lora_rank"}, defaults.kv_lora);
  mla.qk_nope_head_dim = config.number({"qk_nope_head_dim"}, defaults.nope);
  mla.qk_rope_head_dim = config.number({"qk_rope_head_dim"}, defaults.rope);
  mla.v_head_dim = config.number({"v_head_dim"}, defaults.value);
  model.latent = mla;
  model.kv_heads = model.heads;
  model.head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
}

struct MoeDefaults {
  int experts = 0; ///< 0: none unless the configuration says so
  int top_k = kNoDefault;
  int ffn = 1407;
  int shared = 0;
  int first_dense = 0;
  int groups = 1;
  int top_groups = 1;
  bool correction_bias = false;
};

void read_moe(Config& config, ModelSpec& model, const MoeDefaults& defaults) {
  const int experts = config.number({"n_routed_experts", "num_experts", "num_local_experts"},
                                    config.is_null("n_routed_experts") ? 0 : defaults.experts, 0);
  if (experts == 0) return;
  MoeSpec moe;
  moe.experts = experts;
  moe.top_k = config.number({"num_experts_per_tok"}, defaults.top_k);
  moe.ffn = config.number({"moe_intermediate_size"}, defaults.ffn);
  const int shared =
      config.number({"n_shared_experts"}, config.is_null("n_shared_experts") ? 0 : defaults.shared, 0, 1000);
  moe.shared_ffn = static_cast<int>(std::min<std::int64_t>(std::int64_t{shared} * moe.ffn, kWidestConfig));
  moe.first_dense = config.number({"first_k_dense_replace"}, defaults.first_dense, 0, kMaximumLayers);
  moe.groups = config.number({"n_group"}, defaults.groups);
  moe.top_groups = config.number({"topk_group"}, defaults.top_groups);
  moe.correction_bias = defaults.correction_bias;
  moe.first_dense = std::min(moe.first_dense, model.layers);
  model.moe = moe;
}

/// `moe_layer_freq`: of the layers after the dense prefix, those whose index is a multiple are MoE.
void read_layer_frequency(Config& config, ModelSpec& model) {
  const int every = config.number({"moe_layer_freq"}, 1, 1, kMaximumLayers);
  if (!model.moe || every == 1) return;
  const int layers = safe_layers(config, model);
  std::vector<bool> is_moe(static_cast<std::size_t>(layers));
  for (int layer = model.moe->first_dense; layer < layers; ++layer)
    is_moe[static_cast<std::size_t>(layer)] = layer % every == 0;
  set_moe_layers(model, is_moe);
}

/// Refused when layers share indexers (GLM-5.2): how many are stored is not known here.
void read_indexer(Config& config, ModelSpec& model, int heads, int head_dim) {
  if (!model.latent) return;
  model.latent->index_heads = config.number({"index_n_heads"}, heads);
  model.latent->index_head_dim = config.number({"index_head_dim"}, head_dim);
  const char* reason = "layers share indexers: no formula";
  if (const auto types = config.texts({"indexer_types"}))
    if (std::any_of(types->begin(), types->end(), [](const std::string& type) { return type != "full"; }))
      config.problem("indexer_types", reason);
  if (config.has("index_topk_pattern")) config.problem("index_topk_pattern", reason);
  if (config.number({"index_topk_freq"}, 1, 0) > 1) config.problem("index_topk_freq", reason);
}

void note_sparse_attention(ModelSpec& model) {
  model.notes.emplace_back("sparse attention: the indexer's parameters are counted; attention is counted as full");
}

void read_v3_like(Config& config, ModelSpec& model, const Defaults& defaults, const MoeDefaults& moe) {
  read_common(config, model, defaults);
  read_latent(config, model, {});
  read_moe(config, model, moe);
  read_layer_frequency(config, model);
  model.mtp_layers = config.number({"num_nextn_predict_layers"}, 0, 0, 1000);
  model.mtp_own_embeddings = model.mtp_layers > 0; // the released checkpoint stores copies of embedding and head
}

constexpr Defaults kV3{.vocab = 129280,
                       .hidden = 7168,
                       .ffn = 18432,
                       .layers = 61,
                       .heads = 128,
                       .kv_heads = 128,
                       .head_dim = 192,
                       .positions = 4096};
constexpr MoeDefaults kV3Moe{256, 8, 2048, 1, 3, 8, 4, true};

} // namespace

void read_deepseek(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 102400, .hidden = 4096, .ffn = 11008, .layers = 30, .heads = 32, .positions = 2048});
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  read_moe(config, model, {});
  read_layer_frequency(config, model);
}

void read_deepseek_v2(Config& config, ModelSpec& model) {
  read_common(
      config, model,
      {.vocab = 32000, .hidden = 4096, .ffn = 11008, .layers = 32, .heads = 32, .head_dim = 192, .positions = 2048});
  read_latent(config, model, {});
  read_moe(config, model, {.experts = 64, .ffn = 1407, .shared = 2});
  read_layer_frequency(config, model);
}

void read_deepseek_v3(Config& config, ModelSpec& model) {
  read_v3_like(config, model, kV3, kV3Moe);
}

void read_deepseek_v32(Config& config, ModelSpec& model) {
  read_v3_like(config, model, kV3, kV3Moe);
  read_indexer(config, model, 64, 128);
  note_sparse_attention(model);
}

void read_kimi_k2(Config& config, ModelSpec& model) {
  Defaults defaults = kV3;
  defaults.vocab = 163840;
  defaults.heads = 64;
  MoeDefaults moe = kV3Moe;
  moe.experts = 384;
  moe.first_dense = 1;
  moe.groups = moe.top_groups = 1;
  read_v3_like(config, model, defaults, moe);
}

void read_glm_moe_dsa(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 154880,
               .hidden = 6144,
               .ffn = 12288,
               .layers = 78,
               .heads = 64,
               .kv_heads = 64,
               .head_dim = 256,
               .positions = 202752});
  read_latent(config, model, {2048, 512, 192, 64, 256});
  read_moe(config, model, {256, 8, 2048, 1, 3, 1, 1, true});
  if (const auto types = config.texts({"mlp_layer_types"})) {
    const int layers = safe_layers(config, model);
    if (layers > 0 && types->size() != static_cast<std::size_t>(layers))
      config.problem("mlp_layer_types", fmt::format("{} entries for {} layers", types->size(), layers));
    std::vector<bool> is_moe;
    for (std::size_t i = 0; i < types->size(); ++i) {
      if ((*types)[i] != "sparse" && (*types)[i] != "dense")
        config.problem(fmt::format("mlp_layer_types/{}", i), fmt::format("'{}' is unknown", (*types)[i]),
                       "dense or sparse");
      is_moe.push_back((*types)[i] == "sparse");
    }
    set_moe_layers(model, is_moe);
  }
  read_indexer(config, model, 32, 128);
  model.mtp_layers = config.number({"num_nextn_predict_layers"}, 0, 0, 1000);
  note_sparse_attention(model);
}

} // namespace foretrain::huggingface
