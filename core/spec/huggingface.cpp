#include "core/spec/huggingface.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/huggingface/families.h"

namespace foretrain {
namespace {

using huggingface::Architecture;
using huggingface::Config;

/// "Llama" of "LlamaForCausalLM".
std::string class_stem(std::string name) {
  for (const char* suffix : {"ForCausalLM", "ForConditionalGeneration", "LMHeadModel"}) {
    const std::string_view end = suffix;
    if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
      return name.substr(0, name.size() - end.size());
  }
  return name;
}

/// The first class name, or nothing.
std::optional<std::string> first_class(const Json& json) {
  const auto found = json.find("architectures");
  if (found == json.end() || !found->is_array() || found->empty() || !found->front().is_string()) return std::nullopt;
  return found->front().get<std::string>();
}

const Architecture* find_architecture(std::string_view model_type) {
  for (const Architecture& entry : huggingface::architectures())
    if (entry.model_type == model_type) return &entry;
  return nullptr;
}

tl::unexpected<Error> refuse(const std::string& where, const std::string& model_type, const std::string& stem) {
  const std::vector<std::string> known = huggingface_architectures();
  for (const auto& refused : huggingface::refused_architectures())
    if (refused.model_type == model_type || (!stem.empty() && refused.class_stem == stem))
      return fail(
          where,
          fmt::format("architecture '{}' is not supported: {}", model_type.empty() ? stem : model_type, refused.reason),
          "one of: " + join(known, ", "));
  const std::string& word = model_type.empty() ? stem : model_type;
  return fail(where, fmt::format("architecture '{}' is unknown: its parameters have no formula here", word),
              hint_for(word, known));
}

/// By `model_type`, else by the first class name.
Result<const Architecture*> architecture_of(const Json& json, const std::string& file, const std::string& pointer) {
  const std::string where = file + ":" + pointer;
  const auto type = json.find("model_type");
  if (type != json.end() && !type->is_null()) {
    if (!type->is_string()) return fail(where + "/model_type", "is not text", "for example \"llama\"");
    const auto name = type->get<std::string>();
    if (const Architecture* entry = find_architecture(name)) return entry;
    return refuse(where + "/model_type", name, {});
  }
  const std::optional<std::string> name = first_class(json);
  if (!name) return fail(where + "/model_type", "key 'model_type' is missing", "for example \"llama\"");
  const std::string stem = class_stem(*name);
  for (const Architecture& entry : huggingface::architectures())
    if (entry.class_stem == stem) return &entry;
  return refuse(where + "/architectures/0", {}, stem);
}

struct Nested {
  const Json* json = nullptr;
  std::string pointer;
};

/// The text part of a configuration of several parts; nothing when there is one part.
Result<Nested> text_part(const Json& json, const std::string& file, const std::string& pointer) {
  for (const auto& path : {std::array{"text_config", ""}, std::array{"llm_config", ""},
                           std::array{"language_config", ""}, std::array{"thinker_config", "text_config"}}) {
    Nested part{&json, pointer};
    for (const char* key : path) {
      if (part.json == nullptr || std::string_view(key).empty()) continue;
      const auto found = part.json->find(key);
      const bool absent = found == part.json->end() || found->is_null();
      part.pointer += std::string("/") + key;
      if (!absent && !found->is_object()) return fail(file + ":" + part.pointer, "is not an object");
      part.json = absent ? nullptr : &*found;
    }
    if (part.json != nullptr) return part;
  }
  return Nested{};
}

Result<const Architecture*> text_architecture(const Nested& text, const Architecture& outer, const std::string& file) {
  const auto type = text.json->find("model_type");
  if (type == text.json->end() || type->is_null())
    return outer.text_type.empty() ? &outer : find_architecture(outer.text_type);
  return architecture_of(*text.json, file, text.pointer);
}

/// The last part of `_name_or_path`; empty when the file does not say.
std::string model_name(const Json& json) {
  const auto found = json.find("_name_or_path");
  if (found == json.end() || !found->is_string()) return {};
  return std::filesystem::path(found->get<std::string>()).filename().string();
}

/// Quantised checkpoints store more tensors than the model has parameters.
void note_quantization(const Json& json, ModelSpec& model) {
  const auto found = json.find("quantization_config");
  if (found == json.end() || !found->is_object()) return;
  const auto method = found->find("quant_method");
  const std::string name = method != found->end() && method->is_string() ? method->get<std::string>() : "quantised";
  model.notes.push_back(fmt::format("stored as {}: scale tensors of the checkpoint are not parameters", name));
}

/// Keys of the file for keys of ModelSpec: a rule that the model breaks is told in the user's words.
std::string in_file_keys(std::string where) {
  constexpr std::array kKeys = {std::pair{"/kv_heads", "/num_key_value_heads"},
                                std::pair{"/moe/top_k", "/num_experts_per_tok"},
                                std::pair{"/moe/groups", "/n_group"},
                                std::pair{"/moe/top_groups", "/topk_group"},
                                std::pair{"/moe/dense_layers", "/mlp_only_layers"},
                                std::pair{"/ffn", "/intermediate_size"}};
  for (const auto& [ours, theirs] : kKeys)
    if (const auto at = where.rfind(ours); at != std::string::npos)
      return where.replace(at, std::string_view(ours).size(), theirs);
  return where;
}

} // namespace

bool is_huggingface_config(const Json& json) {
  if (!json.is_object()) return false;
  const auto type = json.find("model_type");
  return (type != json.end() && type->is_string()) || first_class(json).has_value();
}

std::vector<std::string> huggingface_architectures() {
  std::vector<std::string> names;
  for (const Architecture& entry : huggingface::architectures()) names.emplace_back(entry.model_type);
  return names;
}

Result<ModelSpec> read_huggingface(const Json& json, const std::string& file, const std::string& pointer) {
  if (!json.is_object())
    return fail(pointer.empty() ? file : file + ":" + pointer, "is not a JSON object",
                "a Hugging Face config.json is expected");
  FORETRAIN_TRY(const Architecture* outer, architecture_of(json, file, pointer));
  const Architecture* architecture = outer;
  FORETRAIN_TRY(const Nested text, text_part(json, file, pointer));
  if (text.json != nullptr) {
    FORETRAIN_TRY(architecture, text_architecture(text, *outer, file));
  }
  const bool nested = text.json != nullptr;
  const std::string& place = nested ? text.pointer : pointer;
  Config config(nested ? *text.json : json, file, place, nested ? &json : nullptr, pointer);
  ModelSpec model;
  model.name = model_name(json);
  architecture->read(config, model);
  if (config.error()) return tl::unexpected<Error>(*config.error());
  huggingface::note_towers(json, outer->model_type, model);
  note_quantization(json, model);
  Result<void> checked = check_model(model, file + ":" + place);
  if (checked) return model;
  Error error = std::move(checked).error();
  error.where = in_file_keys(std::move(error.where));
  return tl::unexpected<Error>(std::move(error));
}

} // namespace foretrain
