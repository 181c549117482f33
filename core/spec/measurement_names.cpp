#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/spec/measurement.h"

namespace foretrain {
namespace {

using Texts = std::map<std::string, std::string>;

std::vector<std::string> assumable_keys() {
  std::vector<std::string> keys(kMeasurementColumns.begin(), kMeasurementColumns.end());
  keys.insert(keys.end(), kExtraKeys.begin(), kExtraKeys.end());
  return keys;
}

Result<std::string> text_at(const Json& object, const std::string& key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return fail(where, "key '" + key + "' is missing");
  if (!found->is_string()) return fail(where + "/" + key, "is not a text");
  return found->get<std::string>();
}

Result<Texts> texts_at(const Json& object, const std::string& key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return fail(where, "key '" + key + "' is missing");
  if (!found->is_object()) return fail(where + "/" + key, "is not an object");
  Texts result;
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string()) return fail(where + "/" + key + "/" + name, "is not a text");
    result.emplace(name, value.get<std::string>());
  }
  return result;
}

Result<Assumption> assumption_from(const Json& json, const std::string& where) {
  if (!json.is_object()) return fail(where, "is not an object");
  Assumption result;
  FORETRAIN_TRY(result.key, text_at(json, "key", where));
  FORETRAIN_TRY(result.value, text_at(json, "value", where));
  FORETRAIN_TRY(result.why, text_at(json, "why", where));
  if (const auto open = json.find("memory_open"); open != json.end()) {
    if (!open->is_boolean()) return fail(where + "/memory_open", "is not true or false");
    result.memory_open = open->get<bool>();
  }
  const std::vector<std::string> keys = assumable_keys();
  if (std::find(keys.begin(), keys.end(), result.key) == keys.end())
    return fail(where + "/key", "unknown key '" + result.key + "'", hint_for(result.key, keys));
  const auto when = json.find("when");
  if (when == json.end()) return result;
  if (!when->is_object()) return fail(where + "/when", "is not an object");
  for (const auto& [column, values] : when->items()) {
    if (std::find(kMeasurementColumns.begin(), kMeasurementColumns.end(), column) == kMeasurementColumns.end())
      return fail(where + "/when", "unknown column '" + column + "'");
    if (!values.is_array()) return fail(where + "/when/" + column, "is not a list");
    for (const Json& value : values) {
      if (!value.is_string()) return fail(where + "/when/" + column, "is not a list of texts");
      result.when[column].push_back(value.get<std::string>());
    }
  }
  return result;
}

/// "q_lora=1536,kv_lora=512,qk_nope=128,qk_rope=64,v=128" or "q_lora1536 kv_lora512 qk_nope128 qk_rope64 v128" as the
/// extra key `mla` has it. Sources that leave qk_nope and v out (DeepSeek-V2-Lite) mean 128 as in its paper; they are
/// not filled in here.
std::string normal_mla(std::string text) {
  std::string result;
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto digit = word.find_first_of("0123456789");
    if (digit == std::string::npos) continue;
    std::string name = word.substr(0, digit);
    while (!name.empty() && name.back() == '=') name.pop_back();
    const Texts names = {{"q_lora", "q"},     {"kv_lora", "kv"}, {"qk_nope", "nope"},
                         {"qk_rope", "rope"}, {"rope", "rope"},  {"v", "v"}};
    const auto found = names.find(name);
    if (found == names.end()) continue;
    if (!result.empty()) result += ' ';
    result += found->second + " " + word.substr(digit);
  }
  return result;
}

/// Layers per chunk of Megatron's pipeline layout "Et*2|… => Ett/tt/tmL": each `t` is a transformer layer.
std::string chunk_layers(const std::string& layout) {
  const auto arrow = layout.find("=> ");
  if (arrow == std::string::npos) return "";
  std::string result;
  std::istringstream chunks(layout.substr(arrow + 3));
  for (std::string chunk; std::getline(chunks, chunk, '/');)
    result += fmt::format("{}{}", result.empty() ? "" : " ", std::count(chunk.begin(), chunk.end(), 't'));
  return result;
}

/// `decoder-first-pipeline-num-layers` and `-last-`: what the stages between share is known with the number of layers.
void read_uneven_ends(const std::string& list, Texts& extras) {
  for (const char* end : {"first", "last"}) {
    const std::string argument = fmt::format(",decoder-{}-pipeline-num-layers:", end);
    if (const auto at = list.find(argument); at != std::string::npos)
      extras[fmt::format("{}_stage_layers", end)] =
          list.substr(at + argument.size(), list.find(',', at + 1) - at - argument.size());
  }
}

void read_megatron_arguments(const std::string& arguments, Texts& extras) {
  const std::string list = "," + arguments + ",";
  const auto has = [&](const std::string& word) { return list.find("," + word + ",") != std::string::npos; };
  extras["overlap_gradients"] = has("overlap-grad-reduce") ? "1" : "0";
  extras["overlap_parameters"] = has("overlap-param-gather") ? "1" : "0";
  if (list.find(",cuda-graph-impl:") != std::string::npos || has("external-cuda-graph"))
    extras["semantics"] = "megatron-core-graphs";
  if (const auto at = list.find(",mtp-num-layers:"); at != std::string::npos)
    extras["mtp_layers"] = list.substr(at + 16, list.find(',', at + 16) - at - 16);
  // The fusion's default implementation is Megatron's own, which keeps what the unfused loss keeps.
  const bool fused = has("cross-entropy-loss-fusion") && has("cross-entropy-fusion-impl:te");
  extras["cross_entropy"] = fused ? "fused" : "vocab-parallel";
  read_uneven_ends(list, extras);
  constexpr std::string_view kGroup = ",microbatch-group-size-per-virtual-pipeline-stage:";
  if (const auto at = list.find(kGroup); at != std::string::npos)
    extras["micro_batch_group"] = list.substr(at + kGroup.size(), list.find(',', at + 1) - at - kGroup.size());
  if (has("deterministic-mode")) extras["deterministic"] = "1";
  if (has("qk-layernorm")) extras["qk_norm"] = "1"; // of latent attention, which has its norms anyway, too
}

/// Items "key=value" of the functional tests' notes.
void read_item(const std::string& key, const std::string& value, Texts& extras) {
  if (key == "mla")
    extras["mla"] = normal_mla(value);
  else if (key == "shared_expert_ffn")
    extras["shared_ffn"] = value;
  else if (key == "bias")
    extras["biases"] = value;
  else if (key == "norm")
    extras["norm"] = value == "RMSNorm" ? "rms" : "layer";
  else if (key == "pos_emb" && value != "learned_absolute")
    extras["learned_positions"] = "0";
  else if (key == "max_pos")
    extras.emplace("learned_positions", value); // unless pos_emb said otherwise
  else if (key == "grad_reduce")
    extras["gradient"] = value;
  else if (key == "grad_accum_fusion")
    extras["gradient_fusion"] = value;
  else if (key == "optimizer")
    extras["optimizer"] = value;
  else if (key == "attn_backend" && value == "unfused")
    extras["attention"] = "unfused";
  else if (key == "attn_backend")
    extras.emplace("attention", "flash");
  else if ((key == "impl" && value == "local") || (key == "image" && value.find(":24.01-") != std::string::npos))
    extras["attention"] = "unfused"; // no TransformerEngine, or one whose choice has the memory of unfused attention
  else if (key == "iter_p25" || key == "iter_p75")
    extras["step_time_" + key.substr(5)] = value;
  else if (key == "moe_dispatcher")
    extras["dispatch"] = value == "allgather" ? "all-gather" : "all-to-all";
  else if (key == "pp_layout")
    extras["layers_per_stage"] = chunk_layers(value);
  else if (key == "other_args")
    read_megatron_arguments(value, extras);
  else if (key == "env" && value.find("expandable_segments:True") != std::string::npos)
    extras["expandable_segments"] = "1";
}

/// Phrases of the other sources' notes.
void read_phrase(const std::string& phrase, Texts& extras) {
  const auto after = [&](std::string_view prefix) {
    return phrase.rfind(prefix, 0) == 0 ? std::optional(phrase.substr(prefix.size())) : std::nullopt;
  };
  if (const auto rest = after("MLA "))
    extras["mla"] = normal_mla(*rest);
  else if (const auto ffn = after("shared expert ffn "))
    extras["shared_ffn"] = *ffn;
  else if (const auto total = after("shared ffn total "))
    extras["shared_ffn"] = *total;
  else if (phrase.rfind("async TP", 0) == 0)
    extras["overlap_tp"] = "1";
  else if (phrase == "fp32 grad accumulation")
    extras["gradient"] = "fp32";
  else if (phrase == "cross-entropy fusion")
    extras["cross_entropy"] = "fused";
  else if (phrase.rfind("CP via all-to-all", 0) == 0)
    extras["context_parallel"] = "ulysses";
  else if (phrase.find("compile") != std::string::npos && phrase.find("nocompile") == std::string::npos)
    extras["compiled"] = "1";
  else if (phrase == "dispatcher DeepEP")
    extras["dispatch"] = "deduplicated";
  else if (phrase.find("embedding-balanced pipeline partition") != std::string::npos)
    extras["embedding_is_a_layer"] = "1";
}

} // namespace

std::map<std::string, std::string> extras_in_notes(const std::string& notes) {
  Texts extras;
  std::istringstream items(notes);
  for (std::string item; std::getline(items, item, ';');) {
    const auto begin = item.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    item = item.substr(begin);
    const auto equals = item.find('=');
    if (equals != std::string::npos) read_item(item.substr(0, equals), item.substr(equals + 1), extras);
    read_phrase(item, extras);
  }
  return extras;
}

bool time_is_derived_from_flop(const Measurement& row) {
  // The wordings of the collection for a time that was computed backwards from a rate of FLOP.
  for (const std::string_view wording :
       {"iter time via 6N", "DERIVED by inverting", "iter_time DERIVED with FLOPs", "iter_time DERIVED from TF"})
    if (row.notes.find(wording) != std::string::npos) return true;
  return false;
}

Result<std::vector<Assumption>> read_assumptions(const DataFolder& data, const std::string& stem) {
  const std::filesystem::path path = data.root / "assumptions" / (stem + ".json");
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return std::vector<Assumption>();
  FORETRAIN_TRY(const Json json, read_json_file(path));
  const std::string file = path.string();
  const auto list = json.find("assumptions");
  if (list == json.end() || !list->is_array()) return fail(file, "key 'assumptions' with a list is missing");
  std::vector<Assumption> result;
  for (std::size_t i = 0; i < list->size(); ++i) {
    FORETRAIN_TRY(Assumption assumption, assumption_from((*list)[i], fmt::format("{}:/assumptions/{}", file, i)));
    result.push_back(std::move(assumption));
  }
  return result;
}

Result<MeasuredNames> read_measured_names(const DataFolder& data) {
  const std::filesystem::path path = data.root / "assumptions" / "names.json";
  FORETRAIN_TRY(const Json json, read_json_file(path));
  const std::string file = path.string();
  MeasuredNames names;
  FORETRAIN_TRY(names.frameworks, texts_at(json, "frameworks", file));
  FORETRAIN_TRY(names.precisions, texts_at(json, "precisions", file));
  FORETRAIN_TRY(names.schedules, texts_at(json, "schedules", file));
  FORETRAIN_TRY(names.sharding, texts_at(json, "sharding", file));
  FORETRAIN_TRY(names.presets, texts_at(json, "presets", file));
  const auto machines = json.find("machines");
  if (machines == json.end() || !machines->is_object()) return fail(file, "key 'machines' with an object is missing");
  for (const auto& [text, value] : machines->items()) {
    const std::string where = file + ":/machines/" + text;
    if (!value.is_object()) return fail(where, "is not an object");
    MeasuredNames::Machine machine;
    FORETRAIN_TRY(machine.device, text_at(value, "device", where));
    FORETRAIN_TRY(machine.cluster, text_at(value, "cluster", where));
    names.machines.emplace(text, std::move(machine));
  }
  return names;
}

} // namespace foretrain
