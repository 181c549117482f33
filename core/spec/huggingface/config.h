#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/model.h"

namespace foretrain::huggingface {

/// Spellings of one key, the first that is present and not null wins.
using Keys = std::initializer_list<const char*>;

inline constexpr int kNoDefault = -1;
inline constexpr int kWidestConfig = 100'000'000;

/// One config.json object while it is read. Null counts as absent. The first problem is kept in `error`; readers go on
/// with a harmless value and the caller looks at `error` once at the end.
class Config {
public:
  /// `outer`: the object around a nested text configuration, at `outer_pointer`; null when there is none.
  Config(const Json& json, std::string file, std::string pointer, const Json* outer = nullptr,
         std::string outer_pointer = {})
      : json_(json), file_(std::move(file)), pointer_(std::move(pointer)), outer_(outer),
        outer_pointer_(std::move(outer_pointer)) {}

  /// A whole number; `otherwise` when absent, an error when absent and `kNoDefault`.
  [[nodiscard]] int number(Keys keys, int otherwise, int least = 1, int most = kWidestConfig);
  [[nodiscard]] std::optional<int> maybe_number(Keys keys, int least = 0, int most = kWidestConfig);
  [[nodiscard]] bool flag(Keys keys, bool otherwise);
  [[nodiscard]] std::string text(Keys keys, const std::string& otherwise);
  /// A list of texts or of whole numbers; absent: nothing.
  [[nodiscard]] std::optional<std::vector<std::string>> texts(Keys keys);
  [[nodiscard]] std::optional<std::vector<int>> numbers(Keys keys);
  [[nodiscard]] bool has(const char* key) const; ///< present and not null
  [[nodiscard]] bool is_null(const char* key) const;
  /// `tie_word_embeddings`: of this object, else of the object around it, else the class default.
  [[nodiscard]] bool tied(bool otherwise);

  void problem(std::string_view key, std::string message, std::string hint = {});
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] std::string where() const;
  [[nodiscard]] const Json& json() const { return json_; }

private:
  [[nodiscard]] const Json* find(Keys keys, std::string& key) const;

  const Json& json_;
  std::string file_;
  std::string pointer_;
  const Json* outer_;
  std::string outer_pointer_;
  std::optional<Error> error_;
};

/// Class defaults of one architecture. 0 in `kv_heads`: equal to heads; 0 in `head_dim`: hidden / heads; 0 in `ffn`:
/// four times hidden.
struct Defaults {
  int vocab = 0;
  int hidden = 0;
  int ffn = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int positions = 0;
  bool tied = false;
  bool null_kv_is_heads = true; ///< an explicit null means heads; otherwise it means the default
};

/// The keys that all architectures share, under every spelling of the alias table.
void read_common(Config& config, ModelSpec& model, const Defaults& defaults);

/// Which layers slide: `layer_types` when present, else every layer but each `full_every`-th.
void read_window(Config& config, ModelSpec& model, std::optional<int> size, int full_every);

/// Dense and MoE layers as a list, one entry per layer, kept as a dense prefix and further dense layers.
void set_moe_layers(ModelSpec& model, const std::vector<bool>& is_moe);

/// Number of layers that may be iterated: 0 after an error.
[[nodiscard]] int safe_layers(const Config& config, const ModelSpec& model);

} // namespace foretrain::huggingface
