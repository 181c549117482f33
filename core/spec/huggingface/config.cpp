#include "core/spec/huggingface/config.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/describe.h"

namespace foretrain::huggingface {

const Json* Config::find(Keys keys, std::string& key) const {
  for (const char* name : keys) {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) continue;
    key = name;
    return &*found;
  }
  key = keys.begin() == keys.end() ? "" : *keys.begin();
  return nullptr;
}

std::string Config::where() const {
  return pointer_.empty() ? file_ : file_ + ":" + pointer_;
}

bool Config::has(const char* key) const {
  const auto found = json_.find(key);
  return found != json_.end() && !found->is_null();
}

bool Config::is_null(const char* key) const {
  const auto found = json_.find(key);
  return found != json_.end() && found->is_null();
}

void Config::problem(std::string_view key, std::string message, std::string hint) {
  if (error_) return;
  error_ = Error{Error::Kind::input, std::move(message), Where{file_, pointer_}.at(key).text(), std::move(hint)};
}

std::optional<int> Config::maybe_number(Keys keys, int least, int most) {
  std::string key;
  const Json* value = find(keys, key);
  if (value == nullptr) return std::nullopt;
  const auto read = detail::read_integer(*value, Where{file_, pointer_}.at(key),
                                         Bounds{static_cast<double>(least), static_cast<double>(most)}, least, most);
  if (read) return static_cast<int>(*read);
  if (!error_) error_ = read.error();
  return std::nullopt;
}

int Config::number(Keys keys, int otherwise, int least, int most) {
  const std::optional<int> value = maybe_number(keys, least, most);
  if (value) return *value;
  if (otherwise == kNoDefault) {
    problem(*keys.begin(), fmt::format("key '{}' is missing", *keys.begin()),
            "this architecture has no default for it");
    return std::max(least, 0);
  }
  return otherwise;
}

bool Config::flag(Keys keys, bool otherwise) {
  std::string key;
  const Json* value = find(keys, key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  problem(key, detail::show(*value) + " is not true or false");
  return otherwise;
}

std::string Config::text(Keys keys, const std::string& otherwise) {
  std::string key;
  const Json* value = find(keys, key);
  if (value == nullptr) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  problem(key, detail::show(*value) + " is not text");
  return otherwise;
}

std::optional<std::vector<std::string>> Config::texts(Keys keys) {
  std::string key;
  const Json* value = find(keys, key);
  if (value == nullptr) return std::nullopt;
  auto read = read_value<std::vector<std::string>>(*value, Where{file_, pointer_}.at(key));
  if (read) return std::move(*read);
  if (!error_) error_ = read.error();
  return std::nullopt;
}

std::optional<std::vector<int>> Config::numbers(Keys keys) {
  std::string key;
  const Json* value = find(keys, key);
  if (value == nullptr) return std::nullopt;
  auto read = read_value<std::vector<int>>(*value, Where{file_, pointer_}.at(key));
  if (read) return std::move(*read);
  if (!error_) error_ = read.error();
  return std::nullopt;
}

bool Config::tied(bool otherwise) {
  if (has("tie_word_embeddings")) return flag({"tie_word_embeddings"}, otherwise);
  if (outer_ == nullptr) return otherwise;
  const auto found = outer_->find("tie_word_embeddings");
  if (found == outer_->end() || found->is_null()) return otherwise;
  if (found->is_boolean()) return found->get<bool>();
  if (!error_)
    error_ = Error{Error::Kind::input,
                   detail::show(*found) + " is not true or false",
                   Where{file_, outer_pointer_}.at("tie_word_embeddings").text(),
                   {}};
  return otherwise;
}

void read_common(Config& config, ModelSpec& model, const Defaults& defaults) {
  const auto or_none = [](int value) { return value == 0 ? kNoDefault : value; };
  model.vocab = config.number({"vocab_size", "padded_vocab_size"}, or_none(defaults.vocab));
  model.hidden = config.number({"hidden_size", "n_embd", "n_embed", "d_model", "dim"}, or_none(defaults.hidden));
  model.layers = config.number({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, or_none(defaults.layers), 1,
                               kMaximumLayers);
  model.heads = config.number({"num_attention_heads", "n_head", "n_heads"}, or_none(defaults.heads));
  const bool null_kv = config.is_null("num_key_value_heads") && defaults.null_kv_is_heads;
  const int kv_default = null_kv || defaults.kv_heads == 0 ? model.heads : defaults.kv_heads;
  model.kv_heads = config.number({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, kv_default);
  const std::optional<int> head_dim = config.maybe_number({"head_dim", "attention_head_dim"}, 1);
  model.head_dim = head_dim.value_or(defaults.head_dim);
  if (model.head_dim == 0 && model.heads > 0) {
    model.head_dim = std::max(model.hidden / model.heads, 1);
    if (model.hidden % model.heads != 0)
      config.problem("hidden_size",
                     fmt::format("{} is not a multiple of the {} attention heads", model.hidden, model.heads),
                     "or give head_dim");
  }
  const std::int64_t four = std::int64_t{4} * model.hidden;
  const int ffn_default =
      defaults.ffn > 0 ? defaults.ffn : static_cast<int>(std::min<std::int64_t>(four, kWidestConfig));
  model.ffn = config.number({"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}, ffn_default);
  model.tied_embeddings = config.tied(defaults.tied);
  model.maximum_positions = config.number(
      {"max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length", "max_seq_len"},
      defaults.positions, 1, 2'000'000'000);
}

int safe_layers(const Config& config, const ModelSpec& model) {
  return config.error() ? 0 : model.layers;
}

void read_window(Config& config, ModelSpec& model, std::optional<int> size, int full_every) {
  const auto types = config.texts({"layer_types"});
  if (!types) {
    if (size && full_every != 1) model.window = SlidingWindow{*size, full_every, {}};
    return;
  }
  if (!config.error() && types->size() != static_cast<std::size_t>(model.layers)) {
    config.problem("layer_types", fmt::format("{} entries for {} layers", types->size(), model.layers));
    return;
  }
  SlidingWindow window{size.value_or(0), 0, {}};
  bool slides = false;
  for (std::size_t i = 0; i < types->size(); ++i) {
    const std::string& type = (*types)[i];
    if (type == "full_attention")
      window.full_layers.push_back(static_cast<int>(i));
    else if (type == "sliding_attention")
      slides = true;
    else
      config.problem(fmt::format("layer_types/{}", i), fmt::format("'{}' is unknown here", type),
                     "full_attention or sliding_attention");
  }
  if (!slides) return;
  if (!size) {
    config.problem("sliding_window", "is missing, but layer_types has sliding layers");
    return;
  }
  // A regular pattern is kept as its period: easier to read, and equal however it was written.
  const std::vector<int>& full = window.full_layers;
  const int period = full.empty() ? 0 : full.front() + 1;
  bool regular = period > 1 && static_cast<std::size_t>(model.layers / period) == full.size();
  for (std::size_t i = 0; regular && i < full.size(); ++i) regular = full[i] == period * static_cast<int>(i + 1) - 1;
  if (regular) window = SlidingWindow{*size, period, {}};
  model.window = window;
}

void set_moe_layers(ModelSpec& model, const std::vector<bool>& is_moe) {
  if (!model.moe) return;
  MoeSpec& moe = *model.moe;
  moe.every = 1;
  moe.dense_layers.clear();
  const auto first = std::find(is_moe.begin(), is_moe.end(), true);
  moe.first_dense = static_cast<int>(first - is_moe.begin());
  for (std::size_t i = static_cast<std::size_t>(moe.first_dense); i < is_moe.size(); ++i)
    if (!is_moe[i]) moe.dense_layers.push_back(static_cast<int>(i));
}

} // namespace foretrain::huggingface
