#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/spec/measurement_parts.h"

namespace foretrain {

Skip missing(std::string column) {
  return Skip{SkipReason::missing, std::move(column)};
}

const std::string* extra(const Measurement& row, const std::string& key) {
  const auto found = row.extras.find(key);
  return found == row.extras.end() ? nullptr : &found->second;
}

std::optional<int> whole(std::string_view text) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<int> extra_number(const Measurement& row, const std::string& key) {
  const std::string* text = extra(row, key);
  return text ? whole(*text) : std::nullopt;
}

std::optional<bool> extra_flag(const Measurement& row, const std::string& key) {
  const auto value = extra_number(row, key);
  return value ? std::optional(*value != 0) : std::nullopt;
}

namespace {

/// "1", "2" (every second), "[0]*3+[1]*58", "[0,1]*24": per layer whether it has experts.
std::optional<std::vector<bool>> expand_pattern(std::string text, int layers) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == '(' || c == ')' || c == ' '; }),
             text.end());
  std::vector<bool> result;
  if (const auto every = whole(text); every && *every > 0) {
    for (int i = 0; i < layers; ++i) result.push_back((i + 1) % *every == 0);
    return result;
  }
  std::istringstream terms(text);
  for (std::string term; std::getline(terms, term, '+');) {
    const auto close = term.find("]*");
    if (term.empty() || term.front() != '[' || close == std::string::npos) return std::nullopt;
    const auto times = whole(std::string_view(term).substr(close + 2));
    if (!times || *times > layers) return std::nullopt;
    for (int i = 0; i < *times; ++i)
      for (const char c : term.substr(1, close - 1))
        if (c == '0' || c == '1') result.push_back(c == '1');
  }
  if (static_cast<int>(result.size()) != layers) return std::nullopt;
  return result;
}

MaybeSkip set_experts(const Measurement& row, ModelSpec& model) {
  MoeSpec moe = model.moe.value_or(MoeSpec{});
  if (!row.top_k) return missing("top_k");
  if (!row.moe_ffn) return missing("moe_ffn_hidden");
  moe.experts = *row.experts;
  moe.top_k = *row.top_k;
  moe.ffn = *row.moe_ffn;
  if (row.shared_experts) moe.shared_ffn = *row.shared_experts * moe.ffn;
  if (const auto ffn = extra_number(row, "shared_ffn")) moe.shared_ffn = *ffn;
  if (row.moe_pattern.empty()) return missing("moe_layer_freq");
  const auto pattern = expand_pattern(row.moe_pattern, model.layers);
  if (!pattern) return Skip{SkipReason::unsupported_feature, "moe_layer_freq " + row.moe_pattern};
  moe.first_dense = 0;
  moe.every = 1;
  moe.dense_layers.clear();
  if (const auto every = whole(row.moe_pattern)) {
    moe.every = *every;
  } else {
    while (moe.first_dense < model.layers && !(*pattern)[static_cast<std::size_t>(moe.first_dense)]) ++moe.first_dense;
    for (int i = moe.first_dense; i < model.layers; ++i)
      if (!(*pattern)[static_cast<std::size_t>(i)]) moe.dense_layers.push_back(i);
  }
  model.moe = moe;
  return std::nullopt;
}

MaybeSkip set_latent_attention(const std::string& text, ModelSpec& model) {
  LatentAttention latent;
  std::istringstream words(text);
  std::string name;
  for (int value = 0; words >> name >> value;) {
    if (name == "q")
      latent.q_lora_rank = value;
    else if (name == "kv")
      latent.kv_lora_rank = value;
    else if (name == "nope")
      latent.qk_nope_head_dim = value;
    else if (name == "rope")
      latent.qk_rope_head_dim = value;
    else if (name == "v")
      latent.v_head_dim = value;
  }
  if (latent.kv_lora_rank == 0) return missing("kv_lora_rank");
  if (latent.qk_nope_head_dim == 0) return missing("qk_nope_head_dim");
  if (latent.qk_rope_head_dim == 0) return missing("qk_rope_head_dim");
  if (latent.v_head_dim == 0) return missing("v_head_dim");
  model.latent = latent;
  return std::nullopt;
}

/// Widths that a source leaves out and the family of the model fixes: plain feed-forwards are 4 h wide (GPT-2, GPT-3),
/// without groups every head has its own keys, heads share the hidden width evenly.
MaybeSkip set_widths(const Measurement& row, ModelSpec& model) {
  if (row.layers) model.layers = *row.layers;
  if (row.hidden) model.hidden = *row.hidden;
  if (row.heads) model.heads = *row.heads;
  if (row.kv_heads) model.kv_heads = *row.kv_heads;
  if (row.gated) model.gated = *row.gated;
  if (row.ffn) model.ffn = *row.ffn;
  if (row.vocab) model.vocab = *row.vocab;
  if (row.tied_embeddings) model.tied_embeddings = *row.tied_embeddings;
  if (row.head_dim && !model.latent) model.head_dim = *row.head_dim;
  if (model.layers == 0) return missing("n_layers");
  if (model.hidden == 0) return missing("hidden");
  if (model.heads == 0) return missing("n_heads");
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0) {
    if (model.hidden % model.heads != 0) return missing("head_dim");
    model.head_dim = model.hidden / model.heads;
  }
  if (model.ffn == 0) {
    if (model.gated) return missing("ffn_hidden");
    model.ffn = 4 * model.hidden;
  }
  if (model.vocab == 0) return missing("vocab");
  return std::nullopt;
}

MaybeSkip set_details(const Measurement& row, ModelSpec& model) {
  if (const std::string* norm = extra(row, "norm")) model.norm = *norm == "layer" ? NormKind::layer : NormKind::rms;
  if (const auto biases = extra_flag(row, "biases")) model.qkv_bias = model.out_bias = model.mlp_bias = *biases;
  if (const auto bias = extra_flag(row, "qkv_bias")) model.qkv_bias = *bias;
  if (const std::string* positions = extra(row, "learned_positions"))
    model.learned_positions = *positions == "seq_len" ? row.sequence_length.value_or(0) : whole(*positions).value_or(0);
  if (const auto layers = extra_number(row, "mtp_layers")) model.mtp_layers = *layers;
  if (const std::string* latent = extra(row, "mla"))
    if (auto skip = set_latent_attention(*latent, model)) return skip;
  if (extra_flag(row, "qk_norm").value_or(false) && !model.latent) model.qk_norm = QkNorm::per_head;
  return std::nullopt;
}

} // namespace

MaybeSkip set_model(const Measurement& row, ModelSpec& model) {
  if (!row.gated && model.name.empty()) return missing("gated_mlp");
  if (!row.tied_embeddings && model.name.empty()) return missing("tied_embeddings");
  if (auto skip = set_details(row, model)) return skip;
  if (auto skip = set_widths(row, model)) return skip;
  model.name = row.model;
  if (row.experts.value_or(0) > 0) return set_experts(row, model);
  if (model.moe && row.layers) { // a preset's experts with another number of layers
    if (model.moe->first_dense >= model.layers) return missing("moe_layer_freq");
  }
  return std::nullopt;
}

std::string_view id_of(SkipReason reason) {
  switch (reason) {
  case SkipReason::missing:
    return "missing";
  case SkipReason::doubtful:
    return "doubtful";
  case SkipReason::reduced_information:
    return "reduced-information";
  case SkipReason::fine_tuning:
    return "fine-tuning";
  case SkipReason::hybrid_model:
    return "hybrid-model";
  case SkipReason::unknown_device:
    return "unknown-device";
  case SkipReason::unknown_framework:
    return "unknown-framework";
  case SkipReason::unsupported_precision:
    return "unsupported-precision";
  case SkipReason::unsupported_schedule:
    return "unsupported-schedule";
  case SkipReason::unsupported_sharding:
    return "unsupported-sharding";
  case SkipReason::unsupported_recompute:
    return "unsupported-recompute";
  case SkipReason::unsupported_optimizer:
    return "unsupported-optimizer";
  case SkipReason::unsupported_feature:
    return "unsupported-feature";
  case SkipReason::inconsistent:
    return "inconsistent";
  case SkipReason::outcome:
    return "outcome";
  case SkipReason::time_from_mfu:
    return "time-from-mfu";
  case SkipReason::nothing_measured:
    return "nothing-measured";
  }
  return "";
}

std::string to_string(const Skip& skip) {
  if (skip.detail.empty()) return std::string(id_of(skip.reason));
  return std::string(id_of(skip.reason)) + " " + skip.detail;
}

} // namespace foretrain
