#include <fmt/format.h>

#include "core/spec/huggingface/families.h"

// Class defaults: huggingface/transformers, src/transformers/models/<architecture>/configuration_<architecture>.py.
namespace foretrain::huggingface {

void read_llama(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 32000, .hidden = 4096, .ffn = 11008, .layers = 32, .heads = 32, .positions = 2048});
  // One key biases all four attention projections.
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  model.mlp_bias = config.flag({"mlp_bias"}, false);
}

void read_mistral(Config& config, ModelSpec& model) {
  read_common(
      config, model,
      {.vocab = 32000, .hidden = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .positions = 131072});
  std::optional<int> window = config.maybe_number({"sliding_window"}, 1);
  if (!window && !config.is_null("sliding_window")) window = 4096;
  read_window(config, model, window, 0);
}

void read_mixtral(Config& config, ModelSpec& model) {
  read_common(
      config, model,
      {.vocab = 32000, .hidden = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .positions = 131072});
  MoeSpec moe;
  moe.experts = config.number({"num_local_experts", "num_experts"}, 8);
  moe.top_k = config.number({"num_experts_per_tok"}, 2);
  moe.ffn = model.ffn; // the configuration keeps the experts' width in intermediate_size
  model.moe = moe;
  model.ffn = 0;
  read_window(config, model, config.maybe_number({"sliding_window"}, 1), 0);
}

void read_phi3(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 32064, .hidden = 3072, .ffn = 8192, .layers = 32, .heads = 32, .positions = 4096});
  read_window(config, model, config.maybe_number({"sliding_window"}, 1), 0);
}

void read_olmo2(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 50304, .hidden = 4096, .ffn = 11008, .layers = 32, .heads = 32, .positions = 2048});
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  model.qk_norm = QkNorm::full_width;
  model.norm_placement =
      NormPlacement::after; // modeling_olmo2.py: post_attention_layernorm, post_feedforward_layernorm
}

void read_smollm3(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 128256,
               .hidden = 2048,
               .ffn = 11008,
               .layers = 36,
               .heads = 16,
               .kv_heads = 4,
               .positions = 32768,
               .tied = true});
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  model.mlp_bias = config.flag({"mlp_bias"}, false);
  if (!config.flag({"use_sliding_window"}, false)) return;
  if (!config.has("layer_types")) {
    config.problem("use_sliding_window", "sliding layers are placed by no_rope_layers, which is not read",
                   "give layer_types");
    return;
  }
  read_window(config, model, config.maybe_number({"sliding_window"}, 1), 0);
}

void read_llama4(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 202048,
               .hidden = 5120,
               .ffn = 8192,
               .layers = 48,
               .heads = 40,
               .kv_heads = 8,
               .head_dim = 128,
               .positions = 131072});
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  MoeSpec moe;
  moe.experts = config.number({"num_local_experts", "num_experts"}, 16);
  moe.top_k = config.number({"num_experts_per_tok"}, 1);
  moe.ffn = model.ffn;
  moe.shared_ffn = model.ffn; // one shared expert, not named by a key
  moe.every = config.number({"interleave_moe_layer_step"}, 1, 1, kMaximumLayers);
  model.ffn = config.number({"intermediate_size_mlp"}, 16384);
  model.moe = moe;
  if (const auto layers = config.numbers({"moe_layers"})) {
    std::vector<bool> is_moe(static_cast<std::size_t>(safe_layers(config, model)));
    for (std::size_t i = 0; i < layers->size(); ++i) {
      const int layer = (*layers)[i];
      if (layer < 0 || layer >= model.layers)
        config.problem(fmt::format("moe_layers/{}", i), fmt::format("{} is not a layer", layer));
      else if (!is_moe.empty())
        is_moe[static_cast<std::size_t>(layer)] = true;
    }
    set_moe_layers(model, is_moe);
  }
  if (config.flag({"use_qk_norm"}, true)) // Llama4TextL2Norm
    model.notes.emplace_back("norms of queries and keys without weights are left out: neither time nor memory");
  const int chunk = config.number({"attention_chunk_size"}, 8192, 1, 2'000'000'000);
  if (model.maximum_positions > chunk)
    model.notes.push_back(fmt::format("chunked attention is counted as full attention: exact up to {} tokens", chunk));
}

} // namespace foretrain::huggingface
