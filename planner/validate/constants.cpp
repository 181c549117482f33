#include "planner/validate/constants.h"

#include <map>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/base/text.h"

namespace foretrain::validation {
namespace {

std::optional<double> number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_string()) return std::nullopt;
  const auto text = json.get<std::string>();
  if (const auto seconds = parse_seconds(text)) return seconds->value;
  if (const auto bytes = parse_bytes(text)) return static_cast<double>(bytes->value);
  if (const auto rate = parse_rate(text)) return rate->value;
  return std::nullopt;
}

Result<std::string> text_at(const Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string() || found->get<std::string>().empty())
    return fail(where, fmt::format("key '{}' with a text is missing", key));
  return found->get<std::string>();
}

Result<double> value_in(const std::filesystem::path& path, const std::string& pointer) {
  FORETRAIN_TRY(const Json json, read_json_file(path));
  const Json::json_pointer at(pointer);
  if (json.contains(at))
    if (const auto value = number_of(json.at(at))) return *value;
  return fail(path.string() + ":" + pointer, "no number or quantity is there", "data/fitted.json names it");
}

Result<FittedConstant> constant_from(const Json& json, const std::filesystem::path& data, const std::string& where) {
  FittedConstant constant;
  FORETRAIN_TRY(constant.file, text_at(json, "file", where));
  FORETRAIN_TRY(constant.key, text_at(json, "key", where));
  FORETRAIN_TRY(constant.owner, text_at(json, "owner", where));
  FORETRAIN_TRY(constant.meaning, text_at(json, "meaning", where));
  FORETRAIN_TRY(constant.fitted_to, text_at(json, "fitted_to", where));
  const auto range = json.find("range");
  if (range == json.end() || !range->is_array() || range->size() != 2 || !number_of((*range)[0]) ||
      !number_of((*range)[1]))
    return fail(where + "/range", "is not a pair of numbers or quantities");
  constant.low = *number_of((*range)[0]);
  constant.high = *number_of((*range)[1]);
  FORETRAIN_TRY(constant.value, value_in(data / constant.file, constant.key));
  if (!(constant.value > constant.low && constant.value < constant.high))
    return fail(where,
                fmt::format("{} of {} is {:g}, at or beyond an end of its plausible range {:g} to {:g}", constant.key,
                            constant.owner, constant.value, constant.low, constant.high),
                "the term is wrong there, not the constant");
  return constant;
}

} // namespace

Result<std::vector<FittedConstant>> read_fitted_constants(const std::filesystem::path& data) {
  const std::filesystem::path path = data / "fitted.json";
  FORETRAIN_TRY(const Json json, read_json_file(path));
  const auto list = json.find("constants");
  if (list == json.end() || !list->is_array()) return fail(path.string(), "key 'constants' with a list is missing");
  std::vector<FittedConstant> constants;
  std::map<std::string, int> owned;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("{}:/constants/{}", path.string(), i);
    FORETRAIN_TRY(FittedConstant constant, constant_from((*list)[i], data, where));
    const bool device = constant.owner.rfind("device ", 0) == 0;
    const int most = device ? kMostPerDevice : kMostPerFramework;
    if (++owned[constant.owner] > most)
      return fail(where, fmt::format("{} has more than {} constants fitted to training steps", constant.owner, most));
    constants.push_back(std::move(constant));
  }
  return constants;
}

} // namespace foretrain::validation
