#include <algorithm>

#include <fmt/format.h>

#include "core/spec/huggingface/families.h"

// Mixture-of-experts and hybrid architectures with softmax, lightning or state-space mixers. Class defaults:
// huggingface/transformers, src/transformers/models/<architecture>/configuration_<architecture>.py.
namespace foretrain::huggingface {
namespace {

/// One letter per layer from a list with two words.
void read_two_kinds(Config& config, ModelSpec& model, const std::vector<std::string>& types, const char* key) {
  const int layers = safe_layers(config, model);
  if (layers > 0 && types.size() != static_cast<std::size_t>(layers))
    config.problem(key, fmt::format("{} entries for {} layers", types.size(), layers));
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "linear_attention")
      config.problem(fmt::format("{}/{}", key, i), fmt::format("'{}' is unknown here", types[i]),
                     "full_attention or linear_attention");
    model.pattern += types[i] == "full_attention" ? 'A' : 'I';
  }
}

/// Older configurations: `attn_type_list` with 1 for softmax and 0 for lightning attention.
std::optional<std::vector<std::string>> minimax_types(Config& config) {
  if (auto types = config.texts({"layer_types"})) return types;
  const auto list = config.numbers({"attn_type_list"});
  if (!list) return std::nullopt;
  std::vector<std::string> types;
  for (const int type : *list)
    types.emplace_back(type == 1 ? "full_attention" : type == 0 ? "linear_attention" : fmt::format("{}", type));
  return types;
}

std::optional<char> block_letter(const std::string& type) {
  if (type == "mamba" || type == "linear_attention") return 'M';
  if (type == "attention" || type == "full_attention") return '*';
  if (type == "moe") return 'E';
  if (type == "mlp") return '-';
  return std::nullopt;
}

/// The kinds of Nemotron-H blocks: a string of letters or a list of words. The number of layers is its length.
std::string block_pattern(Config& config) {
  if (config.has("hybrid_override_pattern")) {
    const std::string pattern = config.text({"hybrid_override_pattern"}, "");
    if (pattern.empty() || pattern.find_first_not_of("ME*-") != std::string::npos)
      config.problem("hybrid_override_pattern", "is not made of M, E, * and -",
                     "M mamba, E experts, * attention, - feed-forward");
    return pattern;
  }
  const auto types = config.texts({"layers_block_type", "layer_types"});
  if (!types) {
    config.problem("hybrid_override_pattern", "key 'hybrid_override_pattern' is missing", "or layers_block_type");
    return {};
  }
  std::string pattern;
  for (std::size_t i = 0; i < types->size(); ++i) {
    const auto letter = block_letter((*types)[i]);
    if (!letter)
      config.problem(fmt::format("layers_block_type/{}", i), fmt::format("'{}' is unknown", (*types)[i]),
                     "mamba, attention, moe or mlp");
    pattern += letter.value_or('-');
  }
  return pattern;
}

void read_mamba(Config& config, ModelSpec& model) {
  Mamba2 mamba;
  mamba.heads = config.number({"mamba_num_heads"}, 128);
  mamba.head_dim = config.number({"mamba_head_dim"}, 64);
  mamba.groups = config.number({"mamba_n_groups", "n_groups"}, 8);
  mamba.state = config.number({"ssm_state_size"}, 128);
  mamba.conv_kernel = config.number({"mamba_d_conv", "conv_kernel"}, 4);
  model.mamba = mamba;
  if (!config.flag({"mamba_conv_bias", "use_conv_bias"}, true))
    config.problem("use_conv_bias", "false: no formula without it");
  if (config.flag({"mamba_proj_bias"}, false)) config.problem("mamba_proj_bias", "true: no formula with it");
  if (config.flag({"use_bias"}, false)) config.problem("use_bias", "true: no formula with it");
}

void read_nemotron_moe(Config& config, ModelSpec& model) {
  if (model.pattern.find('E') == std::string::npos) return;
  if (config.has("moe_latent_size")) config.problem("moe_latent_size", "experts on a latent width have no formula");
  MoeSpec moe;
  moe.experts = config.number({"n_routed_experts", "num_local_experts"}, 8);
  moe.top_k = config.number({"num_experts_per_tok"}, 2);
  moe.ffn = config.number({"moe_intermediate_size"}, 7688);
  const int shared = config.number({"n_shared_experts"}, 1, 0, 1000);
  const int width = config.number({"moe_shared_expert_intermediate_size"}, 7688, 0);
  moe.shared_ffn = static_cast<int>(std::min<std::int64_t>(std::int64_t{shared} * width, kWidestConfig));
  moe.groups = config.number({"n_group"}, 1);
  moe.top_groups = config.number({"topk_group"}, 1);
  model.moe = moe;
  model.notes.emplace_back("the router's correction biases are not counted, as in the published total");
}

} // namespace

void read_glm4_moe(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 151552,
               .hidden = 4096,
               .ffn = 10944,
               .layers = 46,
               .heads = 96,
               .kv_heads = 8,
               .head_dim = 128,
               .positions = 131072,
               .null_kv_is_heads = false});
  model.qkv_bias = config.flag({"attention_bias"}, false); // never on the output projection
  if (config.flag({"use_qk_norm"}, false)) model.qk_norm = QkNorm::per_head;
  MoeSpec moe;
  moe.experts = config.number({"n_routed_experts", "num_experts", "num_local_experts"}, 128);
  moe.top_k = config.number({"num_experts_per_tok"}, 8);
  moe.ffn = config.number({"moe_intermediate_size"}, 1408);
  const int shared = config.number({"n_shared_experts"}, 1, 0, 1000);
  moe.shared_ffn = static_cast<int>(std::min<std::int64_t>(std::int64_t{shared} * moe.ffn, kWidestConfig));
  moe.first_dense = std::min(config.number({"first_k_dense_replace"}, 1, 0, kMaximumLayers), model.layers);
  moe.groups = config.number({"n_group"}, 1);
  moe.top_groups = config.number({"topk_group"}, 1);
  moe.correction_bias = true;
  model.moe = moe;
  model.mtp_layers = config.number({"num_nextn_predict_layers"}, 0, 0, 1000);
  if (model.mtp_layers == 0) return;
  model.mtp_own_embeddings = true;
  model.notes.emplace_back("the MTP layer is counted with private copies of embedding and head, as GLM-4.5 stores it; "
                           "GLM-4.6 shares them");
}

void read_gpt_oss(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 201088,
               .hidden = 2880,
               .ffn = 2880,
               .layers = 36,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 64,
               .positions = 131072});
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, true);
  model.attention_sinks = true;
  MoeSpec moe;
  moe.experts = config.number({"num_local_experts", "num_experts"}, 128);
  moe.top_k = config.number({"num_experts_per_tok", "experts_per_token"}, 4);
  moe.ffn = model.ffn;
  moe.router_bias = true;
  moe.expert_bias = true;
  model.moe = moe;
  model.ffn = 0;
  std::optional<int> window = config.maybe_number({"sliding_window"}, 1);
  if (!window && !config.is_null("sliding_window")) window = 128;
  read_window(config, model, window, 2);
}

void read_minimax(Config& config, ModelSpec& model) {
  read_common(
      config, model,
      {.vocab = 32000, .hidden = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .positions = 131072});
  MoeSpec moe;
  moe.experts = config.number({"num_local_experts", "num_experts"}, 8);
  moe.top_k = config.number({"num_experts_per_tok"}, 2);
  moe.ffn = model.ffn;
  moe.shared_ffn = config.number({"shared_intermediate_size"}, 0, 0);
  model.moe = moe;
  model.ffn = 0;
  if (const auto types = minimax_types(config)) {
    read_two_kinds(config, model, *types, config.has("layer_types") ? "layer_types" : "attn_type_list");
    return;
  }
  for (int layer = 0; layer < safe_layers(config, model); ++layer) model.pattern += layer % 2 == 0 ? 'A' : 'I';
}

void read_minimax_m2(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 200064,
               .hidden = 3072,
               .ffn = 1536,
               .layers = 62,
               .heads = 48,
               .kv_heads = 8,
               .head_dim = 128,
               .positions = 196608});
  if (config.flag({"use_qk_norm"}, true)) model.qk_norm = QkNorm::full_width;
  MoeSpec moe;
  moe.experts = config.number({"num_local_experts", "num_experts"}, 256);
  moe.top_k = config.number({"num_experts_per_tok"}, 8);
  moe.ffn = model.ffn;
  moe.shared_ffn = config.number({"shared_intermediate_size"}, 0, 0);
  moe.correction_bias = true;
  model.moe = moe;
  model.ffn = 0;
  if (const int modules = config.number({"num_mtp_modules"}, 0, 0, 1000); modules > 0)
    model.notes.push_back(fmt::format("{} MTP modules are left out, as in the published total", modules));
}

void read_nemotron_h(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 131072,
               .hidden = 4096,
               .ffn = 21504,
               .layers = 1,
               .heads = 32,
               .kv_heads = 8,
               .head_dim = 128,
               .positions = 4096});
  model.pattern = block_pattern(config);
  const auto letters = static_cast<int>(std::min<std::size_t>(model.pattern.size(), kMaximumLayers + std::size_t{1}));
  if (config.has("num_hidden_layers") && model.layers != letters)
    config.problem("num_hidden_layers", fmt::format("{}, but the pattern has {} blocks", model.layers, letters));
  model.layers = letters;
  model.gated = false; // squared ReLU: two matrices
  model.norms_per_layer = 1;
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  model.mlp_bias = config.flag({"mlp_bias"}, false);
  read_mamba(config, model);
  read_nemotron_moe(config, model);
  if (model.pattern.find('-') == std::string::npos) model.ffn = 0;
  if (config.number({"num_nextn_predict_layers"}, 0, 0, 1000) > 0)
    model.notes.emplace_back("MTP layers are left out: their blocks have no formula");
}

} // namespace foretrain::huggingface
