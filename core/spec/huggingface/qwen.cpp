#include <algorithm>

#include <fmt/format.h>

#include "core/spec/huggingface/families.h"

// Class defaults: huggingface/transformers, src/transformers/models/<architecture>/configuration_<architecture>.py.
namespace foretrain::huggingface {
namespace {

/// Layers from `max_window_layers` on slide when `use_sliding_window` is set.
void read_qwen_window(Config& config, ModelSpec& model) {
  if (!config.flag({"use_sliding_window"}, false)) return;
  const int size = config.number({"sliding_window"}, 4096);
  const int full = std::min(config.number({"max_window_layers"}, 28, 0, kMaximumLayers), model.layers);
  if (config.has("layer_types")) {
    read_window(config, model, size, 0);
    return;
  }
  if (full >= model.layers) return;
  SlidingWindow window{size, 0, {}};
  for (int layer = 0; layer < (config.error() ? 0 : full); ++layer) window.full_layers.push_back(layer);
  model.window = window;
}

/// Layer i is MoE iff it is not in `mlp_only_layers` and (i + 1) is a multiple of `decoder_sparse_step`.
void read_qwen_moe(Config& config, ModelSpec& model, int experts, int top_k, int ffn) {
  MoeSpec moe;
  moe.experts = config.number({"num_experts", "num_local_experts"}, experts, 0);
  moe.top_k = config.number({"num_experts_per_tok"}, top_k);
  moe.ffn = config.number({"moe_intermediate_size"}, ffn);
  moe.every = config.number({"decoder_sparse_step"}, 1, 1, kMaximumLayers);
  if (const auto dense = config.numbers({"mlp_only_layers"})) moe.dense_layers = *dense;
  if (moe.experts > 0) model.moe = moe;
}

void read_shared_expert(Config& config, ModelSpec& model, int width) {
  const int shared = config.number({"shared_expert_intermediate_size"}, width, 0);
  if (!model.moe) return;
  model.moe->shared_ffn = shared;
  model.moe->shared_gate = shared > 0;
}

/// Gated DeltaNet with full attention every `full_attention_interval`-th layer, or as `layer_types` says.
void read_delta(Config& config, ModelSpec& model) {
  DeltaNet delta;
  delta.key_heads = config.number({"linear_num_key_heads"}, 16);
  delta.key_head_dim = config.number({"linear_key_head_dim"}, 128);
  delta.value_heads = config.number({"linear_num_value_heads"}, 32);
  delta.value_head_dim = config.number({"linear_value_head_dim"}, 128);
  delta.conv_kernel = config.number({"linear_conv_kernel_dim"}, 4);
  model.delta = delta;
  model.output_gate = config.flag({"attn_output_gate"}, true);
  model.qk_norm = QkNorm::per_head;
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  const int interval = config.number({"full_attention_interval"}, 4, 1, kMaximumLayers);
  const auto types = config.texts({"layer_types"});
  const int layers = safe_layers(config, model);
  if (types && layers > 0 && types->size() != static_cast<std::size_t>(layers)) {
    config.problem("layer_types", fmt::format("{} entries for {} layers", types->size(), layers));
    return;
  }
  for (int layer = 0; layer < layers; ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    const bool linear = types ? (*types)[index] == "linear_attention" : (layer + 1) % interval != 0;
    if (types && !linear && (*types)[index] != "full_attention")
      config.problem(fmt::format("layer_types/{}", layer), fmt::format("'{}' is unknown here", (*types)[index]),
                     "full_attention or linear_attention");
    model.pattern += linear ? 'D' : 'A';
  }
}

} // namespace

void read_qwen2(Config& config, ModelSpec& model) {
  read_common(
      config, model,
      {.vocab = 151936, .hidden = 4096, .ffn = 22016, .layers = 32, .heads = 32, .kv_heads = 32, .positions = 32768});
  model.qkv_bias = true; // always, and no key says so
  read_qwen_window(config, model);
}

void read_qwen2_moe(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 151936,
               .hidden = 2048,
               .ffn = 5632,
               .layers = 24,
               .heads = 16,
               .kv_heads = 16,
               .positions = 32768,
               .null_kv_is_heads = false});
  model.qkv_bias = config.flag({"qkv_bias"}, true);
  read_qwen_moe(config, model, 60, 4, 1408);
  read_shared_expert(config, model, 5632);
  read_qwen_window(config, model);
}

void read_qwen3(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 151936,
               .hidden = 4096,
               .ffn = 22016,
               .layers = 32,
               .heads = 32,
               .kv_heads = 32,
               .head_dim = 128,
               .positions = 32768});
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  model.qk_norm = QkNorm::per_head;
  read_qwen_window(config, model);
}

void read_qwen3_moe(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 151936,
               .hidden = 2048,
               .ffn = 6144,
               .layers = 24,
               .heads = 32,
               .kv_heads = 4,
               .positions = 32768,
               .null_kv_is_heads = false});
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  model.qk_norm = QkNorm::per_head;
  read_qwen_moe(config, model, 128, 8, 768);
  read_qwen_window(config, model);
}

void read_qwen3_next(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 151936,
               .hidden = 2048,
               .ffn = 5632,
               .layers = 48,
               .heads = 16,
               .kv_heads = 2,
               .head_dim = 256,
               .positions = 32768,
               .null_kv_is_heads = false});
  read_delta(config, model);
  read_qwen_moe(config, model, 512, 10, 512);
  read_shared_expert(config, model, 512);
  model.mtp_layers = config.number({"num_nextn_predict_layers"}, 0, 0, 1000);
}

void read_qwen3_5(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 248320,
               .hidden = 4096,
               .ffn = 12288,
               .layers = 32,
               .heads = 16,
               .kv_heads = 4,
               .head_dim = 256,
               .positions = 32768,
               .null_kv_is_heads = false});
  read_delta(config, model);
  model.mtp_layers = config.number({"mtp_num_hidden_layers"}, 0, 0, 1000);
}

void read_qwen3_5_moe(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 248320,
               .hidden = 2048,
               .layers = 40,
               .heads = 16,
               .kv_heads = 2,
               .head_dim = 256,
               .positions = 32768,
               .null_kv_is_heads = false});
  read_delta(config, model);
  read_qwen_moe(config, model, 256, 8, 512);
  read_shared_expert(config, model, 512);
  model.ffn = 0; // every layer is MoE
  model.mtp_layers = config.number({"mtp_num_hidden_layers"}, 0, 0, 1000);
}

} // namespace foretrain::huggingface
