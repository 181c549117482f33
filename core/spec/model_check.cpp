#include <algorithm>

#include <fmt/format.h>

#include "core/spec/model.h"

namespace foretrain {
namespace {

struct Named {
  const char* key;
  int value;
  int least;
  int most;
};

constexpr int kWidest = 100'000'000;

Result<void> in_range(const std::string& where, std::initializer_list<Named> values) {
  for (const Named& named : values)
    if (named.value < named.least || named.value > named.most)
      return fail(where + "/" + named.key, fmt::format("{} is out of range", named.value),
                  fmt::format("between {} and {}", named.least, named.most));
  return {};
}

bool has_attention(const std::vector<LayerShape>& shapes) {
  return std::any_of(shapes.begin(), shapes.end(), [](const LayerShape& shape) {
    return shape.mixer == Mixer::attention || shape.mixer == Mixer::latent || shape.mixer == Mixer::lightning;
  });
}

Result<void> check_attention(const ModelSpec& model, int least, const std::string& where) {
  const Result<void> ranges = in_range(where, {{"heads", model.heads, least, kWidest},
                                               {"kv_heads", model.kv_heads, least, kWidest},
                                               {"head_dim", model.head_dim, least, kWidest}});
  if (!ranges) return ranges;
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0)
    return fail(where + "/kv_heads", fmt::format("{} does not divide heads = {}", model.kv_heads, model.heads),
                "each key/value head serves the same number of query heads");
  return {};
}

Result<void> check_latent(const LatentAttention& mla, const std::string& where) {
  if (mla.index_heads > 0 && mla.index_head_dim <= 0)
    return fail(where + "/index_head_dim", fmt::format("{} with index_heads = {}", mla.index_head_dim, mla.index_heads),
                "the width of an indexer head");
  return in_range(where, {{"q_lora_rank", mla.q_lora_rank.value_or(1), 1, kWidest},
                          {"kv_lora_rank", mla.kv_lora_rank, 1, kWidest},
                          {"qk_nope_head_dim", mla.qk_nope_head_dim, 0, kWidest},
                          {"qk_rope_head_dim", mla.qk_rope_head_dim, 1, kWidest},
                          {"v_head_dim", mla.v_head_dim, 1, kWidest},
                          {"index_heads", mla.index_heads, 0, kWidest},
                          {"index_head_dim", mla.index_head_dim, 0, kWidest}});
}

Result<void> check_moe(const ModelSpec& model, const MoeSpec& moe, const std::string& where) {
  const Result<void> ranges = in_range(where, {{"experts", moe.experts, 1, kWidest},
                                               {"top_k", moe.top_k, 1, kWidest},
                                               {"ffn", moe.ffn, 1, kWidest},
                                               {"shared_ffn", moe.shared_ffn, 0, kWidest},
                                               {"first_dense", moe.first_dense, 0, kMaximumLayers},
                                               {"every", moe.every, 1, kMaximumLayers},
                                               {"groups", moe.groups, 1, kWidest},
                                               {"top_groups", moe.top_groups, 1, kWidest}});
  if (!ranges) return ranges;
  if (moe.top_k > moe.experts)
    return fail(where + "/top_k", fmt::format("{} is more than experts = {}", moe.top_k, moe.experts));
  if (moe.first_dense > model.layers)
    return fail(where + "/first_dense", fmt::format("{} is more than layers = {}", moe.first_dense, model.layers));
  if (moe.experts % moe.groups != 0)
    return fail(where + "/groups", fmt::format("{} does not divide experts = {}", moe.groups, moe.experts));
  if (moe.top_groups > moe.groups)
    return fail(where + "/top_groups", fmt::format("{} is more than groups = {}", moe.top_groups, moe.groups));
  for (std::size_t i = 0; i < moe.dense_layers.size(); ++i)
    if (moe.dense_layers[i] < 0 || moe.dense_layers[i] >= model.layers)
      return fail(fmt::format("{}/dense_layers/{}", where, i),
                  fmt::format("{} is not a layer of a model of {} layers", moe.dense_layers[i], model.layers));
  return {};
}

Result<void> check_window(const ModelSpec& model, const SlidingWindow& window, const std::string& where) {
  const Result<void> ranges =
      in_range(where, {{"size", window.size, 1, 2'000'000'000}, {"full_every", window.full_every, 0, kMaximumLayers}});
  if (!ranges) return ranges;
  for (std::size_t i = 0; i < window.full_layers.size(); ++i)
    if (window.full_layers[i] < 0 || window.full_layers[i] >= model.layers)
      return fail(fmt::format("{}/full_layers/{}", where, i),
                  fmt::format("{} is not a layer of a model of {} layers", window.full_layers[i], model.layers));
  return {};
}

Result<void> check_pattern(const ModelSpec& model, const std::string& where) {
  if (model.pattern.empty()) return {};
  if (model.pattern.size() != static_cast<std::size_t>(model.layers))
    return fail(where + "/pattern", fmt::format("{} letters for {} layers", model.pattern.size(), model.layers),
                "one letter per layer");
  const std::size_t unknown = model.pattern.find_first_not_of("ALDIM*-E");
  if (unknown != std::string::npos)
    return fail(
        where + "/pattern", fmt::format("letter {} is not a kind of layer", unknown + 1),
        "A attention, L latent, D gated delta, I lightning, M mamba, * attention alone, - dense alone, E MoE alone");
  const auto has = [&](char letter) { return model.pattern.find(letter) != std::string::npos; };
  const auto needs = [&](char letter, const char* key) {
    return fail(where + "/pattern", fmt::format("letter '{}' needs the key '{}'", letter, key));
  };
  if (has('L') && !model.latent) return needs('L', "latent");
  if (has('D') && !model.delta) return needs('D', "delta");
  if (has('M') && !model.mamba) return needs('M', "mamba");
  if (has('E') && !model.moe) return needs('E', "moe");
  return {};
}

Result<void> check_linear(const ModelSpec& model, const std::string& where) {
  if (model.delta) {
    const DeltaNet& delta = *model.delta;
    const Result<void> ranges = in_range(where + "/delta", {{"key_heads", delta.key_heads, 1, kWidest},
                                                            {"key_head_dim", delta.key_head_dim, 1, kWidest},
                                                            {"value_heads", delta.value_heads, 1, kWidest},
                                                            {"value_head_dim", delta.value_head_dim, 1, kWidest},
                                                            {"conv_kernel", delta.conv_kernel, 1, kWidest}});
    if (!ranges) return ranges;
  }
  if (model.mamba) {
    const Mamba2& mamba = *model.mamba;
    return in_range(where + "/mamba", {{"heads", mamba.heads, 1, kWidest},
                                       {"head_dim", mamba.head_dim, 1, kWidest},
                                       {"groups", mamba.groups, 1, kWidest},
                                       {"state", mamba.state, 1, kWidest},
                                       {"conv_kernel", mamba.conv_kernel, 1, kWidest}});
  }
  return {};
}

Result<void> check_norms(const ModelSpec& model, const std::string& where) {
  const bool around = model.norm_placement == NormPlacement::around;
  if (around != (model.norms_per_layer == 4))
    return fail(where + "/norms_per_layer",
                fmt::format("{} with norm_placement {}", model.norms_per_layer, around ? "around" : "before or after"),
                around ? "norms around both halves are 4"
                       : "4 norms stand around the halves: norm_placement \"around\"");
  if (model.norm_placement == NormPlacement::before) return {};
  if (model.parallel_block)
    return fail(where + "/norm_placement", "norms after the halves of a parallel block",
                "parallel halves have norms before them");
  if (!around && model.norms_per_layer != 2)
    return fail(where + "/norms_per_layer", fmt::format("{} with norm_placement after", model.norms_per_layer),
                "one norm after each half: 2");
  return {};
}

} // namespace

Result<void> check_model(const ModelSpec& model, const std::string& where) {
  const Result<void> ranges = in_range(where, {{"layers", model.layers, 1, kMaximumLayers},
                                               {"hidden", model.hidden, 1, kWidest},
                                               {"ffn", model.ffn, 0, kWidest},
                                               {"vocab", model.vocab, 1, kWidest},
                                               {"norms_per_layer", model.norms_per_layer, 0, 16},
                                               {"learned_positions", model.learned_positions, 0, 2'000'000'000},
                                               {"embedding_projection", model.embedding_projection, 0, kWidest},
                                               {"mtp_layers", model.mtp_layers, 0, 1000},
                                               {"maximum_positions", model.maximum_positions, 0, 2'000'000'000}});
  if (!ranges) return ranges;
  if (model.latent)
    if (const auto checked = check_latent(*model.latent, where + "/latent"); !checked) return checked;
  if (model.moe)
    if (const auto checked = check_moe(model, *model.moe, where + "/moe"); !checked) return checked;
  if (model.window)
    if (const auto checked = check_window(model, *model.window, where + "/window"); !checked) return checked;
  if (const auto checked = check_linear(model, where); !checked) return checked;
  if (const auto checked = check_pattern(model, where); !checked) return checked;
  if (const auto checked = check_norms(model, where); !checked) return checked;

  const std::vector<LayerShape> shapes = layer_shapes(model);
  if (const auto checked = check_attention(model, has_attention(shapes) ? 1 : 0, where); !checked) return checked;
  const bool dense = std::any_of(shapes.begin(), shapes.end(),
                                 [](const LayerShape& shape) { return shape.feed_forward == FeedForward::dense; });
  if (dense && model.ffn == 0)
    return fail(where + "/ffn", "0, but a layer has a dense feed-forward", "the width of the dense feed-forward");
  const ParameterCount count = count_parameters(model);
  if (count.total > kMaximumParameters || count.mtp > kMaximumParameters)
    return fail(where.substr(0, where.find_last_not_of(':') + 1),
                fmt::format("{:.3g} parameters are more than can be counted", static_cast<double>(count.total)),
                fmt::format("at most {:.0e}", static_cast<double>(kMaximumParameters)));
  return {};
}

} // namespace foretrain
