#include <fmt/format.h>

#include "core/spec/huggingface/families.h"

namespace foretrain::huggingface {
namespace {

constexpr std::int64_t kLlama4Tower = 871932416; ///< vision tower, adapter and projector of the released checkpoints
constexpr std::int64_t kSiglip = 416866032;      ///< SigLIP-So400m/14 at 896 pixels, as in Gemma 3

/// False when `key` is present with another value: the tower is then not the one whose size is known.
bool is(const Json& tower, const char* key, int expected) {
  const auto found = tower.find(key);
  return found == tower.end() || (found->is_number() && found->get<double>() == expected);
}

std::optional<std::int64_t> tower_parameters(const Json& tower, std::string_view model_type, const ModelSpec& model) {
  if (model_type == "llama4" && is(tower, "hidden_size", 1408) && is(tower, "num_hidden_layers", 34) &&
      is(tower, "intermediate_size", 5632) && is(tower, "vision_output_dim", 4096) && model.hidden == 5120)
    return kLlama4Tower;
  if (model_type == "gemma3" && is(tower, "hidden_size", 1152) && is(tower, "num_hidden_layers", 27) &&
      is(tower, "intermediate_size", 4304) && is(tower, "image_size", 896) && is(tower, "patch_size", 14))
    return kSiglip + std::int64_t{1152} * model.hidden + 1152; // projector and its norm
  return std::nullopt;
}

} // namespace

void note_towers(const Json& outer, std::string_view model_type, ModelSpec& model) {
  const auto part = [&](const char* key) -> const Json* {
    const auto found = outer.find(key);
    return found != outer.end() && found->is_object() ? &*found : nullptr;
  };
  const Json empty = Json::object();
  const Json* vision = part("vision_config");
  // These two always have a tower, whether or not the file spells it out.
  const bool always = model_type == "llama4" || model_type == "gemma3";
  if (vision != nullptr || always) {
    const auto size = tower_parameters(vision != nullptr ? *vision : empty, model_type, model);
    model.notes.push_back(size ? fmt::format("vision tower and projector not in the total: {} parameters", *size)
                               : std::string("vision tower not counted: no formula for its size"));
  }
  if (part("audio_config") != nullptr) model.notes.emplace_back("audio tower not counted: no formula for its size");
}

} // namespace foretrain::huggingface
