#include "core/spec/huggingface/families.h"

// Architectures from before LLaMA: plain feed-forward, LayerNorm, biases. Class defaults as in
// huggingface/transformers, src/transformers/models/<architecture>/configuration_<architecture>.py.
namespace foretrain::huggingface {
namespace {

void plain_with_biases(ModelSpec& model) {
  model.gated = false;
  model.norm = NormKind::layer;
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
}

constexpr const char* kAlibi = "ALiBi: biases of attention scores are counted as part of the attention kernel";

} // namespace

void read_gpt2(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 50257, .hidden = 768, .layers = 12, .heads = 12, .positions = 1024, .tied = true});
  plain_with_biases(model);
  // `n_ctx` is the older name of the same size; the table has n_positions rows.
  model.learned_positions = config.number({"n_positions", "max_position_embeddings", "n_ctx"}, 1024, 1, 2'000'000'000);
  model.maximum_positions = model.learned_positions;
}

void read_gpt_neox(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 50432, .hidden = 6144, .ffn = 24576, .layers = 44, .heads = 64, .positions = 2048});
  plain_with_biases(model);
  model.qkv_bias = model.out_bias = config.flag({"attention_bias"}, true);
  model.parallel_block = config.flag({"use_parallel_residual"}, true);
}

void read_opt(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 50272, .hidden = 768, .ffn = 3072, .layers = 12, .heads = 12, .positions = 2048, .tied = true});
  plain_with_biases(model);
  model.qkv_bias = model.out_bias = model.mlp_bias = config.flag({"enable_bias"}, true);
  if (!config.flag({"layer_norm_elementwise_affine"}, true))
    config.problem("layer_norm_elementwise_affine", "false: norms without weights are not modelled");
  model.learned_positions = model.maximum_positions + 2; // the class shifts positions by two rows
  const int projection = config.number({"word_embed_proj_dim"}, model.hidden);
  if (projection != model.hidden) model.embedding_projection = projection;
  model.final_norm = config.flag({"do_layer_norm_before"}, true) && !config.flag({"_remove_final_layer_norm"}, false);
}

void read_bloom(Config& config, ModelSpec& model) {
  read_common(config, model, {.vocab = 250880, .hidden = 64, .layers = 2, .heads = 8, .positions = 0, .tied = true});
  plain_with_biases(model);
  model.embedding_norm = true;
  model.notes.emplace_back(kAlibi);
}

void read_falcon(Config& config, ModelSpec& model) {
  read_common(config, model,
              {.vocab = 65024, .hidden = 4544, .layers = 32, .heads = 71, .positions = 2048, .tied = true});
  plain_with_biases(model);
  model.qkv_bias = model.out_bias = model.mlp_bias = config.flag({"bias"}, false);
  const bool grouped = config.flag({"new_decoder_architecture"}, false);
  const bool parallel = config.flag({"parallel_attn"}, true) || grouped;
  // Before the grouped architecture the key/value heads are one or all, whatever num_kv_heads says.
  if (!grouped) model.kv_heads = config.flag({"multi_query"}, true) ? 1 : model.heads;
  model.parallel_block = parallel;
  if (config.flag({"alibi"}, false)) model.notes.emplace_back(kAlibi);
  model.norms_per_layer = grouped ? config.number({"num_ln_in_parallel_attn"}, 2, 1, 2) : parallel ? 1 : 2;
}

} // namespace foretrain::huggingface
