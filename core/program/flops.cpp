#include "core/program/flops.h"

#include <algorithm>

#include "core/base/text.h"

namespace foretrain {
namespace {

constexpr double kBackwardAndForward = 3; // backward does both gradients: twice the forward
constexpr double kMultiplyAdd = 2;

struct Named {
  FlopConvention convention;
  std::string_view id;
};
constexpr std::array<Named, kFlopConventions> kNames = {{{FlopConvention::megatron, "megatron"},
                                                         {FlopConvention::k22, "k22"},
                                                         {FlopConvention::k22_hfu_full, "k22-hfu-full"},
                                                         {FlopConvention::k22_hfu_selective, "k22-hfu-selective"},
                                                         {FlopConvention::palm, "palm"},
                                                         {FlopConvention::torchtitan, "torchtitan"},
                                                         {FlopConvention::llm_foundry_star, "llm-foundry-mfu*"},
                                                         {FlopConvention::llm_foundry, "llm-foundry"},
                                                         {FlopConvention::llm_foundry_hfu, "llm-foundry-hfu"},
                                                         {FlopConvention::nanogpt, "nanogpt"},
                                                         {FlopConvention::six_n, "6n"}}};

double real(std::int64_t value) {
  return static_cast<double>(value);
}

const char* name_of_mixer(Mixer mixer) {
  switch (mixer) {
  case Mixer::attention:
    return "attention";
  case Mixer::latent:
    return "latent attention";
  case Mixer::gated_delta:
    return "gated DeltaNet";
  case Mixer::lightning:
    return "lightning attention";
  case Mixer::mamba2:
    return "Mamba-2";
  case Mixer::none:
    return "none";
  }
  return "?";
}

bool has_formula(Mixer mixer) {
  return mixer == Mixer::attention || mixer == Mixer::latent || mixer == Mixer::none;
}

/// Width over all heads of queries (= keys) plus values: QK^T and AV are both counted.
double attention_width(const ModelSpec& model, Mixer mixer) {
  switch (mixer) {
  case Mixer::attention:
    return 2.0 * model.heads * model.head_dim;
  case Mixer::latent:
    if (!model.latent) return 0;
    return real(model.heads) *
           (model.latent->qk_nope_head_dim + model.latent->qk_rope_head_dim + model.latent->v_head_dim);
  case Mixer::gated_delta:
  case Mixer::lightning:
  case Mixer::mamba2:
  case Mixer::none:
    return 0;
  }
  return 0;
}

/// Elements of the attention projections that Megatron-LM counts; its latent form adds one row per compressed norm.
double projections(const ModelSpec& model, Mixer mixer) {
  const double h = model.hidden;
  if (mixer == Mixer::attention) {
    const double q = real(model.heads) * model.head_dim;
    return h * ((model.output_gate ? 2 : 1) * q + 2.0 * model.kv_heads * model.head_dim) + q * h;
  }
  if (mixer != Mixer::latent || !model.latent) return 0;
  const LatentAttention& mla = *model.latent;
  const double a = model.heads;
  const double query = a * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  const double q = mla.q_lora_rank ? *mla.q_lora_rank * (h + query + 1) : h * query;
  const double kv = mla.kv_lora_rank * (h + a * (mla.qk_nope_head_dim + mla.v_head_dim) + 1) + h * mla.qk_rope_head_dim;
  return q + kv + a * mla.v_head_dim * h;
}

double feed_forward(const ModelSpec& model, FeedForward kind) {
  const double matrices = model.gated ? 3 : 2;
  switch (kind) {
  case FeedForward::dense:
    return matrices * model.hidden * model.ffn;
  case FeedForward::moe:
    return model.moe ? matrices * model.hidden * (real(model.moe->top_k) * model.moe->ffn + model.moe->shared_ffn) : 0;
  case FeedForward::none:
    return 0;
  }
  return 0;
}

/// Elements of the adapters of a layer.
double adapters(const ModelSpec& model, const LayerShape& each, const LoraChoice& lora) {
  const double h = model.hidden;
  const double q = real(model.heads) * (model.latent ? model.latent->v_head_dim : model.head_dim);
  double widths = 0;
  for (const AdapterTarget target : lora.targets) {
    const double ffn = each.feed_forward == FeedForward::dense ? model.ffn : 0;
    switch (target) {
    case AdapterTarget::qkv:
      widths += h + q + 2.0 * model.kv_heads * model.head_dim;
      break;
    case AdapterTarget::attention_out:
      widths += q + h;
      break;
    case AdapterTarget::ffn_up:
      widths += ffn > 0 ? h + (model.gated ? 2 : 1) * ffn : 0;
      break;
    case AdapterTarget::ffn_down:
      widths += ffn > 0 ? ffn + h : 0;
      break;
    }
  }
  return lora.rank * widths;
}

/// Megatron-LM megatron/training/training.py: 6 · (projections + feed-forward + causal half of QK^T and AV + head), MTP
/// layers as layers plus their projection and norms.
double megatron(const ModelSpec& model, const FlopShape& shape) {
  double length = shape.sequence_length;
  if (!shape.packed.empty()) {
    double sum = 0;
    double shares = 0;
    for (const LengthBin& bin : shape.packed) {
      sum += bin.share * bin.length;
      shares += bin.share;
    }
    if (shares > 0) length = sum / shares;
  }
  // Frozen weights have no weight gradient: two of three passes.
  const double passes = shape.lora ? 2.0 / 3 : 1;
  const auto layer = [&](const LayerShape& each) {
    return passes * (projections(model, each.mixer) + feed_forward(model, each.feed_forward)) +
           (shape.lora ? adapters(model, each, *shape.lora) : 0) + attention_width(model, each.mixer) * length / 2;
  };
  double elements = 0;
  for (const LayerShape& each : layer_shapes(model)) elements += layer(each);
  const double h = model.hidden;
  if (model.mtp_layers > 0) elements += model.mtp_layers * (layer(mtp_shape(model)) + 2 * h * h + 3 * h);
  const double vocab = shape.padded_vocab > 0 ? shape.padded_vocab : model.vocab;
  elements += passes * h * vocab * (model.mtp_layers + 1);
  return kBackwardAndForward * kMultiplyAdd * elements;
}

/// 12 · L · (heads · width) · s in the usual case: QK^T and AV, forward and backward, no causal half.
double full_attention(const ModelSpec& model, double sequence) {
  double width = 0;
  for (const LayerShape& each : layer_shapes(model)) width += attention_width(model, each.mixer);
  return kBackwardAndForward * kMultiplyAdd * width * sequence;
}

/// Korthikanti et al. 2022 (arXiv:2205.05198), appendix; full recomputation: Narayanan et al. 2021 (arXiv:2104.04473).
/// Both describe GPT: ffn = 4h, no grouped queries.
Result<double> k22(const ModelSpec& model, FlopConvention convention, double s) {
  const double h = model.hidden;
  const bool is_gpt = !model.moe && !model.latent && model.kv_heads == model.heads &&
                      real(model.heads) * model.head_dim == h && feed_forward(model, FeedForward::dense) == 8 * h * h;
  if (!is_gpt)
    return fail("", "the " + std::string(id_of(convention)) + " formula does not describe '" + model.name + "'",
                "it assumes a dense model with ffn = 4 hidden and as many key as query heads; use megatron");
  const double layers = model.layers;
  const double vocab = model.vocab;
  if (convention == FlopConvention::k22_hfu_full)
    return 96 * layers * h * h * (1 + s / (6 * h) + vocab / (16 * h * layers));
  const double attention = convention == FlopConvention::k22_hfu_selective ? s / (3 * h) : s / (6 * h);
  return 72 * layers * h * h * (1 + attention + vocab / (12 * h * layers));
}

} // namespace

std::string_view id_of(FlopConvention convention) {
  for (const Named& each : kNames)
    if (each.convention == convention) return each.id;
  return "?";
}

std::array<FlopConvention, kFlopConventions> all_flop_conventions() {
  std::array<FlopConvention, kFlopConventions> all{};
  for (std::size_t i = 0; i < kNames.size(); ++i) all[i] = kNames[i].convention;
  return all;
}

Result<FlopConvention> flop_convention_from(std::string_view text, const std::string& where) {
  std::vector<std::string> ids;
  for (const Named& each : kNames) {
    if (each.id == text) return each.convention;
    ids.emplace_back(each.id);
  }
  return fail(where, "'" + std::string(text) + "' is no FLOP convention", hint_for(text, ids));
}

Result<double> flop_per_token(const ModelSpec& model, FlopConvention convention, const FlopShape& shape) {
  const bool needs_attention = convention != FlopConvention::six_n && convention != FlopConvention::llm_foundry_star;
  if (needs_attention)
    for (const LayerShape& each : layer_shapes(model))
      if (!has_formula(each.mixer))
        return fail("",
                    "'" + model.name + "' has " + name_of_mixer(each.mixer) + " layers, whose FLOP are not modelled",
                    "the conventions 6n and llm-foundry-mfu* need parameters alone");
  const ParameterCount count = count_parameters(model);
  const double s = shape.sequence_length;
  const double six = kBackwardAndForward * kMultiplyAdd;
  switch (convention) {
  case FlopConvention::megatron:
    return megatron(model, shape);
  case FlopConvention::k22:
  case FlopConvention::k22_hfu_full:
  case FlopConvention::k22_hfu_selective:
    return k22(model, convention, s);
  case FlopConvention::palm:
    return six * real(count.active) + full_attention(model, s);
  case FlopConvention::torchtitan:
    return six * real(count.active_no_input_embedding) + full_attention(model, s);
  case FlopConvention::llm_foundry_star:
  case FlopConvention::six_n:
    return six * real(count.active);
  case FlopConvention::llm_foundry:
    return six * real(count.active) + 12.0 * model.layers * model.hidden * s;
  case FlopConvention::llm_foundry_hfu:
    return 8 * real(count.active) + 16.0 * model.layers * model.hidden * s;
  case FlopConvention::nanogpt:
    return six * (real(count.active) - real(model.learned_positions) * model.hidden) + full_attention(model, s);
  }
  return 0.0;
}

Result<FlopPerSecond> dense_peak(const DeviceSpec& device, Precision precision) {
  const auto known = [&](const std::optional<FlopPerSecond>& peak, const char* name) -> Result<FlopPerSecond> {
    if (peak && peak->value > 0) return *peak;
    return fail("", "device '" + device.name + "': '" + name + "' is unknown, so no utilisation can be stated",
                "state the dense peak in the device file");
  };
  switch (precision) {
  case Precision::fp64:
    return known(device.fp64, "fp64");
  case Precision::fp32:
    return known(device.fp32, "fp32");
  case Precision::bf16:
    return known(device.bf16, "bf16");
  case Precision::fp16:
    return known(device.fp16, "fp16");
  case Precision::fp8_delayed:
  case Precision::fp8_current:
  case Precision::fp8_blockwise:
  case Precision::mxfp8:
    return known(device.fp8, "fp8");
  case Precision::nvfp4:
    return known(device.fp4, "fp4");
  }
  return known(std::nullopt, "precision");
}

double utilisation_percent(double flop_per_token, double tokens_per_s_per_device, FlopPerSecond peak) {
  return 100 * flop_per_token * tokens_per_s_per_device / peak.value;
}

} // namespace foretrain
