// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/edits.h"

#include "core/spec/io.h"

namespace foretrain::gui {
namespace {

constexpr const char* kChipKinds[] = {"expression", "column", "brush"};

std::string text_in(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
}

const Json& list_in(const Json& json, const char* key) {
  static const Json none = Json::array();
  return json.is_object() && json.contains(key) && json[key].is_array() ? json[key] : none;
}

std::optional<Layout> layout_in(const Json& json) {
  auto layout = layout_from(json, "session");
  return layout ? std::optional<Layout>(std::move(*layout)) : std::nullopt;
}

} // namespace

Json with_edits(const Edits& edits, Json before) {
  Json json = before.is_object() ? std::move(before) : Json::object();
  json["version"] = 1;
  json["study"] = edits.document;
  json["filters"] = Json::array();
  for (const Chip& chip : edits.chips)
    json["filters"].push_back(
        {{"kind", kChipKinds[static_cast<int>(chip.kind)]}, {"field", chip.field}, {"text", chip.text}});
  json["pins"] = Json::array();
  for (const Pin& pin : edits.pins) json["pins"].push_back({{"layout", to_json(pin.layout)}, {"note", pin.note}});
  json["baseline"] = edits.baseline ? to_json(*edits.baseline) : Json();
  json["columns"] = edits.columns;
  json["sort"] = Json::array();
  for (const SortKey& key : edits.sort) json["sort"].push_back({{"field", key.field}, {"descending", key.descending}});
  return json;
}

Edits edits_from(const Json& json) {
  Edits edits;
  if (!json.is_object()) return edits;
  if (json.contains("study") && json["study"].is_object()) edits.document = json["study"];
  for (const Json& entry : list_in(json, "filters")) {
    Chip chip;
    for (int kind = 0; kind < 3; ++kind)
      if (text_in(entry, "kind") == kChipKinds[kind]) chip.kind = static_cast<Chip::Kind>(kind);
    chip.field = text_in(entry, "field");
    chip.text = text_in(entry, "text");
    if (chip_filter(chip)) edits.chips.push_back(std::move(chip));
  }
  for (const Json& entry : list_in(json, "pins")) {
    if (!entry.is_object() || !entry.contains("layout")) continue;
    if (auto layout = layout_in(entry["layout"])) edits.pins.push_back({std::move(*layout), text_in(entry, "note")});
  }
  if (json.contains("baseline") && json["baseline"].is_object()) edits.baseline = layout_in(json["baseline"]);
  for (const Json& entry : list_in(json, "columns"))
    if (entry.is_string() && find_field(entry.get<std::string>())) edits.columns.push_back(entry.get<std::string>());
  for (const Json& entry : list_in(json, "sort")) {
    const std::string field = text_in(entry, "field");
    if (find_field(field)) edits.sort.push_back({field, entry.value("descending", Json(false)) == Json(true)});
  }
  return edits;
}

} // namespace foretrain::gui
