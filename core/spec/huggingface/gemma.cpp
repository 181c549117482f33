#include "core/spec/huggingface/families.h"

// Class defaults: huggingface/transformers, src/transformers/models/<architecture>/configuration_<architecture>.py.
namespace foretrain::huggingface {
namespace {

constexpr Defaults kGemma{.vocab = 256000,
                          .hidden = 2304,
                          .ffn = 9216,
                          .layers = 26,
                          .heads = 8,
                          .kv_heads = 4,
                          .head_dim = 256,
                          .positions = 8192,
                          .tied = true,
                          .null_kv_is_heads = false};

std::optional<int> window_size(Config& config) {
  const auto size = config.maybe_number({"sliding_window"}, 1);
  return size ? size : std::optional(4096);
}

/// Norms before and after both halves, and an embedding times √hidden (modeling_gemma2.py).
void sandwiched(ModelSpec& model) {
  model.norms_per_layer = 4;
  model.norm_placement = NormPlacement::around;
  model.scaled_embedding = true;
}

/// Caps where the file names them or, absent, those of the class; null means none.
void read_softcaps(Config& config, ModelSpec& model, int attention, int logits) {
  const auto cap = [&config](const char* key, int otherwise) {
    return config.is_null(key) ? 0 : config.number({key}, otherwise, 0, 1'000'000);
  };
  model.attention_softcap = cap("attn_logit_softcapping", attention);
  model.logit_softcap = cap("final_logit_softcapping", logits);
}

} // namespace

void read_gemma2(Config& config, ModelSpec& model) {
  read_common(config, model, kGemma);
  sandwiched(model);
  read_softcaps(config, model, 50, 30);
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  read_window(config, model, window_size(config), 2);
}

void read_gemma3(Config& config, ModelSpec& model) {
  Defaults defaults = kGemma;
  defaults.vocab = 262208;
  defaults.positions = 131072;
  read_common(config, model, defaults);
  sandwiched(model);
  read_softcaps(config, model, 0, 0);
  model.qk_norm = QkNorm::per_head;
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, false);
  read_window(config, model, window_size(config),
              config.number({"sliding_window_pattern", "_sliding_window_pattern"}, 6, 1, kMaximumLayers));
}

} // namespace foretrain::huggingface
