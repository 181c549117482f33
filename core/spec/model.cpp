#include "core/spec/model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace foretrain {
namespace {

/// A count that stays at the maximum instead of overflowing. Widths are never negative.
struct Count {
  std::int64_t value = 0;
  Count() = default;
  Count(std::int64_t v) : value(v) {} // NOLINT(google-explicit-constructor): formulas read as formulas
  Count(int v) : value(v) {}          // NOLINT(google-explicit-constructor)
  Count& operator+=(Count other) { return *this = *this + other; }
  friend Count operator+(Count a, Count b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a.value, b.value, &sum) ? Count(kMost) : Count(sum);
  }
  friend Count operator*(Count a, Count b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a.value, b.value, &product) ? Count(kMost) : Count(product);
  }
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
};

Count norm_size(const ModelSpec& model) {
  const Count h = model.hidden;
  return model.norm == NormKind::layer ? 2 * h : h;
}

/// h·nh·d + 2·h·kv·d + nh·d·h, a second query projection for an output gate, biases, query/key norms, sinks.
Count attention_parameters(const ModelSpec& model) {
  const Count h = model.hidden;
  const Count q = Count(model.heads) * model.head_dim;
  const Count kv = Count(model.kv_heads) * model.head_dim;
  const Count projected = (model.output_gate ? 2 : 1) * q + 2 * kv;
  Count sum = h * projected + q * h;
  if (model.qkv_bias) sum += projected;
  if (model.out_bias) sum += h;
  const Count norms = model.norm == NormKind::layer ? 2 : 1;
  switch (model.qk_norm) {
  case QkNorm::none:
    break;
  case QkNorm::per_head:
    sum += norms * 2 * Count(model.head_dim);
    break;
  case QkNorm::full_width:
    sum += norms * (q + kv);
    break;
  }
  if (model.attention_sinks) sum += model.heads;
  return sum;
}

/// DeepSeek-V2 (arXiv:2405.04434) section 2.1; the indexer as in DeepSeek-V3.2 and GLM-5.
Count latent_parameters(const ModelSpec& model, const LatentAttention& mla) {
  const Count h = model.hidden;
  const Count nh = model.heads;
  const Count query = nh * (Count(mla.qk_nope_head_dim) + mla.qk_rope_head_dim);
  const Count compressed = Count(mla.kv_lora_rank) + mla.qk_rope_head_dim;
  const Count q_lora = mla.q_lora_rank.value_or(0);
  Count sum = mla.q_lora_rank ? h * q_lora + q_lora + q_lora * query : h * query;
  sum += h * compressed + mla.kv_lora_rank;
  sum += mla.kv_lora_rank * (nh * (Count(mla.qk_nope_head_dim) + mla.v_head_dim));
  sum += nh * mla.v_head_dim * h;
  // Biases sit on the projections that read or write the residual stream.
  if (model.qkv_bias) sum += q_lora + compressed;
  if (model.out_bias) sum += h;
  if (mla.index_heads > 0) {
    const Count d = mla.index_head_dim;
    const Count from = mla.q_lora_rank ? q_lora : h;
    sum += from * mla.index_heads * d + h * d + 2 * d + h * mla.index_heads;
  }
  return sum;
}

/// Q, K, V, output gate z, the per-head gates b and a, convolution over q, k, v, A and dt, head norm, output.
Count delta_parameters(const ModelSpec& model, const DeltaNet& delta) {
  const Count h = model.hidden;
  const Count kd = Count(delta.key_heads) * delta.key_head_dim;
  const Count vd = Count(delta.value_heads) * delta.value_head_dim;
  const Count nv = delta.value_heads;
  return h * (2 * kd + 2 * vd) + h * 2 * nv + (2 * kd + vd) * delta.conv_kernel + 2 * nv + delta.value_head_dim +
         vd * h;
}

/// Q, K, V, output gate, output and the norm over all heads (MiniMax-01, arXiv:2501.08313).
Count lightning_parameters(const ModelSpec& model) {
  const Count width = Count(model.heads) * model.head_dim;
  return 5 * Count(model.hidden) * width + width;
}

/// In-projection, convolution with bias, A, D and dt bias, gated norm, out-projection.
Count mamba_parameters(const ModelSpec& model, const Mamba2& mamba) {
  const Count h = model.hidden;
  const Count inner = Count(mamba.heads) * mamba.head_dim;
  const Count convolved = inner + 2 * Count(mamba.groups) * mamba.state;
  return h * (inner + convolved + mamba.heads) + convolved * mamba.conv_kernel + convolved + 3 * Count(mamba.heads) +
         inner + inner * h;
}

Count mixer_parameters(const ModelSpec& model, Mixer mixer) {
  switch (mixer) {
  case Mixer::attention:
    return attention_parameters(model);
  case Mixer::latent:
    return latent_parameters(model, model.latent.value_or(LatentAttention{}));
  case Mixer::gated_delta:
    return delta_parameters(model, model.delta.value_or(DeltaNet{}));
  case Mixer::lightning:
    return lightning_parameters(model);
  case Mixer::mamba2:
    return mamba_parameters(model, model.mamba.value_or(Mamba2{}));
  case Mixer::none:
    return 0;
  }
  return 0;
}

Count matrices(const ModelSpec& model) {
  return model.gated ? 3 : 2;
}

Count dense_parameters(const ModelSpec& model) {
  const Count h = model.hidden;
  const Count f = model.ffn;
  Count sum = matrices(model) * h * f;
  if (model.mlp_bias) sum += (model.gated ? 2 : 1) * f + h;
  return sum;
}

Count moe_parameters(const ModelSpec& model, const MoeSpec& moe, bool active) {
  const Count h = model.hidden;
  const Count experts = moe.experts;
  Count expert = matrices(model) * h * moe.ffn;
  if (moe.expert_bias) expert += (model.gated ? 2 : 1) * Count(moe.ffn) + h;
  Count sum = (active ? Count(moe.top_k) : experts) * expert + h * experts;
  if (moe.router_bias) sum += experts;
  if (moe.correction_bias) sum += experts;
  sum += matrices(model) * h * moe.shared_ffn;
  if (moe.shared_gate) sum += h;
  return sum;
}

Count feed_forward_parameters(const ModelSpec& model, FeedForward kind, bool active) {
  switch (kind) {
  case FeedForward::dense:
    return dense_parameters(model);
  case FeedForward::moe:
    return moe_parameters(model, model.moe.value_or(MoeSpec{}), active);
  case FeedForward::none:
    return 0;
  }
  return 0;
}

Count layer_count(const ModelSpec& model, const LayerShape& shape, bool active) {
  return mixer_parameters(model, shape.mixer) + feed_forward_parameters(model, shape.feed_forward, active) +
         Count(model.norms_per_layer) * norm_size(model);
}

Mixer mixer_of(const ModelSpec& model, char letter) {
  switch (letter) {
  case 'L':
    return Mixer::latent;
  case 'D':
    return Mixer::gated_delta;
  case 'I':
    return Mixer::lightning;
  case 'M':
    return Mixer::mamba2;
  case '-':
  case 'E':
    return Mixer::none;
  case 'A':
  case '*':
    return Mixer::attention;
  default:
    return model.latent ? Mixer::latent : Mixer::attention;
  }
}

FeedForward feed_forward_of(const ModelSpec& model, char letter, int layer) {
  if (letter == 'M' || letter == '*') return FeedForward::none;
  if (letter == '-') return FeedForward::dense;
  if (letter == 'E') return FeedForward::moe;
  if (!model.moe) return FeedForward::dense;
  const MoeSpec& moe = *model.moe;
  if (layer < moe.first_dense || (layer + 1) % std::max(moe.every, 1) != 0) return FeedForward::dense;
  return FeedForward::moe;
}

int window_of(const ModelSpec& model, Mixer mixer, int layer) {
  if (!model.window || (mixer != Mixer::attention && mixer != Mixer::latent)) return 0;
  const SlidingWindow& window = *model.window;
  return window.full_every > 0 && (layer + 1) % window.full_every == 0 ? 0 : window.size;
}

} // namespace

std::vector<LayerShape> layer_shapes(const ModelSpec& model) {
  std::vector<LayerShape> shapes;
  shapes.reserve(static_cast<std::size_t>(std::max(model.layers, 0)));
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    const char letter = index < model.pattern.size() ? model.pattern[index] : '\0';
    const Mixer mixer = mixer_of(model, letter);
    shapes.push_back({mixer, feed_forward_of(model, letter, layer), window_of(model, mixer, layer)});
  }
  if (model.moe)
    for (const int layer : model.moe->dense_layers)
      if (layer >= 0 && layer < model.layers &&
          shapes[static_cast<std::size_t>(layer)].feed_forward == FeedForward::moe)
        shapes[static_cast<std::size_t>(layer)].feed_forward = FeedForward::dense;
  if (model.window)
    for (const int layer : model.window->full_layers)
      if (layer >= 0 && layer < model.layers) shapes[static_cast<std::size_t>(layer)].window = 0;
  return shapes;
}

LayerShape mtp_shape(const ModelSpec& model) {
  const std::vector<LayerShape> shapes = layer_shapes(model);
  return shapes.empty() ? LayerShape{} : shapes.back();
}

std::int64_t layer_parameters(const ModelSpec& model, const LayerShape& shape, bool active) {
  return layer_count(model, shape, active).value;
}

ParameterCount count_parameters(const ModelSpec& model) {
  const Count h = model.hidden;
  const bool projected = model.embedding_projection > 0;
  const Count table = Count(model.vocab) * (projected ? Count(model.embedding_projection) : h);
  const Count projection = projected ? h * model.embedding_projection : Count(0);

  Count layers = 0;
  Count active_layers = 0;
  std::map<std::pair<Mixer, FeedForward>, int> kinds;
  const std::vector<LayerShape> shapes = layer_shapes(model);
  for (const LayerShape& shape : shapes) ++kinds[{shape.mixer, shape.feed_forward}];
  for (const auto& [kind, count] : kinds) {
    const LayerShape shape{kind.first, kind.second, 0};
    layers += count * layer_count(model, shape, false);
    active_layers += count * layer_count(model, shape, true);
  }

  ParameterCount result;
  const Count embedding =
      table + projection + h * model.learned_positions + (model.embedding_norm ? norm_size(model) : Count(0));
  const Count head = (model.tied_embeddings ? Count(0) : table) + projection;
  const Count rest = embedding + head + (model.final_norm ? norm_size(model) : Count(0));
  result.embedding = embedding.value;
  result.head = head.value;
  result.total = (layers + rest).value;
  result.active = (active_layers + rest).value;
  result.active_no_input_embedding =
      result.active - (model.tied_embeddings || result.active == Count::kMost ? 0 : table.value);
  if (model.mtp_layers > 0) {
    const LayerShape last = shapes.empty() ? LayerShape{} : shapes.back();
    const Count own = model.mtp_own_embeddings ? 2 * table : Count(0);
    // eh_proj joins the hidden state and the next token's embedding; norms for both, and one before the head.
    result.mtp = (model.mtp_layers * (layer_count(model, last, false) + 2 * h * h + 3 * h + own)).value;
  }
  return result;
}

} // namespace foretrain
