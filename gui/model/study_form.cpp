// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/study_form.h"

#include <fmt/format.h>

#include "core/spec/io.h"

namespace foretrain::gui {
namespace {

/// The object among alternatives ("name or object"); null when there is none.
const Json* object_schema(const Json& schema) {
  if (schema.contains("properties") && schema.contains("title")) return &schema;
  if (schema.contains("anyOf"))
    for (const Json& choice : schema["anyOf"])
      if (const Json* found = object_schema(choice)) return found;
  return nullptr;
}

std::string show(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_array()) {
    std::string text;
    for (const Json& entry : value) text += (text.empty() ? "" : ", ") + show(entry);
    return text;
  }
  return value.is_null() ? "" : value.dump();
}

std::string range_of(const Json& schema) {
  const Json& numbers = schema.contains("items") ? schema["items"] : schema;
  const auto end = [&](const char* key) { return fmt::format("{:g}", numbers[key].get<double>()); };
  if (numbers.contains("minimum") && numbers.contains("maximum")) return end("minimum") + " … " + end("maximum");
  if (numbers.contains("minimum")) return "at least " + end("minimum");
  return numbers.contains("maximum") ? "at most " + end("maximum") : "";
}

std::vector<std::string> choices_of(const Json& schema) {
  std::vector<std::string> choices;
  const Json& values = schema.contains("items") ? schema["items"] : schema;
  if (values.contains("enum"))
    for (const Json& id : values["enum"]) choices.push_back(show(id));
  return choices;
}

FormField::Kind kind_of(const Json& schema) {
  if (schema.contains("enum")) return FormField::Kind::choice;
  const std::string type = schema.value("type", "");
  if (type == "array") return FormField::Kind::list;
  if (type == "boolean") return FormField::Kind::flag;
  if (type == "integer") return FormField::Kind::whole;
  return type == "number" ? FormField::Kind::number : FormField::Kind::text;
}

class Form {
public:
  explicit Form(const DataFolder& data) : data_(data) {}

  void add_section(const std::string& title, const std::string& pointer, const std::string& help, int depth) {
    FormField field;
    field.kind = FormField::Kind::section;
    field.key = title;
    field.pointer = pointer;
    field.help = help;
    field.depth = depth;
    list.push_back(std::move(field));
  }

  void add_members(const Json& schema, const Json& document, const std::string& pointer, int depth) {
    for (const auto& [key, property] : schema["properties"].items())
      add(key, property, document.is_object() && document.contains(key) ? document[key] : Json(), pointer + "/" + key,
          depth);
  }

  void add(const std::string& key, const Json& schema, const Json& value, const std::string& pointer, int depth) {
    const Json* object = object_schema(schema);
    const bool list_of_objects = schema.value("type", "") == "array" && object_schema(schema["items"]) != nullptr;
    if (list_of_objects) {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        const std::string name = value[i].is_object() ? value[i].value("name", std::to_string(i)) : std::to_string(i);
        add_section(key + " " + name, pointer + "/" + std::to_string(i), "", depth);
        add_members(*object_schema(schema["items"]), value[i], pointer + "/" + std::to_string(i), depth + 1);
      }
      return;
    }
    if (object && value.is_object()) {
      add_section(key, pointer, schema.value("description", ""), depth);
      add_members(*object, value, pointer, depth + 1);
      return;
    }
    FormField field;
    field.kind = object ? FormField::Kind::text : kind_of(schema);
    field.key = key;
    field.pointer = pointer;
    field.help = schema.value("description", "");
    field.range = range_of(schema);
    field.choices = choices_of(schema);
    if (key == "device") field.choices = data_.devices();
    if (key == "semantics") field.choices = data_.semantics();
    if (!field.choices.empty() && field.kind == FormField::Kind::text) field.kind = FormField::Kind::choice;
    if (schema.contains("examples")) field.example = show(schema["examples"][0]);
    if (schema.contains("default")) field.inherited = show(schema["default"]);
    if (object && schema.value("description", "").empty()) field.help = object->value("description", "");
    if (object) add_kinds(*object, field);
    if (!value.is_null()) field.value = show(value);
    field.depth = depth;
    list.push_back(std::move(field));
  }

  std::vector<FormField> list;

private:
  /// A choice with members of its own may be written as its kind alone.
  static void add_kinds(const Json& object, FormField& field) {
    if (!object["properties"].contains("kind")) return;
    field.choices = choices_of(object["properties"]["kind"]);
    if (!field.choices.empty()) field.kind = FormField::Kind::choice;
  }

  const DataFolder& data_;
};

void add_preset(Form& form, const char* key, const Json& document, std::vector<std::string> names, std::string help) {
  FormField field;
  field.kind = FormField::Kind::choice;
  field.key = key;
  field.pointer = "/" + std::string(key);
  field.help = std::move(help);
  field.choices = std::move(names);
  if (document.contains(key)) {
    const Json& value = document[key];
    if (value.is_string()) field.value = value.get<std::string>();
    if (value.is_object() && value.contains("preset")) {
      field.pointer += "/preset";
      field.value = show(value["preset"]);
    }
  }
  form.list.push_back(std::move(field));
}

bool written_out(const Json& document, const char* key) {
  return document.contains(key) && document[key].is_object() && !document[key].contains("preset");
}

void add_cluster(Form& form, const Json& schema, const Json& document, const DataFolder& data) {
  form.add_section("cluster", "/cluster", "", 0);
  const Json none;
  const Json& cluster = document.contains("cluster") ? document["cluster"] : none;
  if (written_out(document, "cluster"))
    return form.add_members(*object_schema(schema["properties"]["cluster"]), cluster, "/cluster", 1);
  add_preset(form, "cluster", document, data.clusters(), "The machines: a preset of data/clusters.");
  form.list.back().depth = 1;
  FormField devices;
  devices.kind = FormField::Kind::whole;
  devices.key = "devices";
  devices.pointer = "/cluster/devices";
  devices.help = "How many devices of it to use: whole nodes.";
  devices.range = "at least 1";
  devices.depth = 1;
  if (cluster.is_object() && cluster.contains("devices")) devices.value = show(cluster["devices"]);
  if (cluster.is_string())
    if (const auto preset = data.cluster(cluster.get<std::string>()))
      devices.inherited = std::to_string(device_count(*preset));
  form.list.push_back(std::move(devices));
}

Json parsed(const FormField& field, const std::string& text) {
  const auto scalar = [](const std::string& part) {
    auto json = parse_json(part, "value");
    return json && (json->is_number() || json->is_boolean()) ? *json : Json(part);
  };
  if (field.kind == FormField::Kind::flag) return text == "yes" || text == "true" ? Json(true) : Json(false);
  if (field.kind == FormField::Kind::whole || field.kind == FormField::Kind::number) return scalar(text);
  if (field.kind != FormField::Kind::list) return text;
  Json list = Json::array();
  std::string part;
  const auto take = [&] {
    if (part == "yes" || part == "no")
      list.push_back(part == "yes");
    else if (!part.empty())
      list.push_back(scalar(part));
    part.clear();
  };
  for (const char c : text) {
    if (c == ',' || c == ' ' || c == '\t')
      take();
    else
      part += c;
  }
  take();
  return list;
}

} // namespace

std::vector<FormField> study_form(const Json& document, const DataFolder& data) {
  const auto read = schema("study");
  if (!read) return {};
  const Json& all = *read;
  const Json none = Json::object();
  const auto part = [&](const char* key) -> const Json& { return document.contains(key) ? document[key] : none; };
  Form form(data);
  form.add_section("model", "/model", "", 0);
  if (written_out(document, "model")) {
    form.add_members(*object_schema(all["properties"]["model"]), document["model"], "/model", 1);
  } else {
    add_preset(form, "model", document, data.models(),
               "The transformer: a preset, or drop a config.json on the window.");
    form.list.back().depth = 1;
  }
  add_cluster(form, all, document, data);
  for (const char* key : {"job", "space"}) {
    const Json& schema_of_part = all["properties"][key];
    form.add_section(key, "/" + std::string(key), schema_of_part.value("description", ""), 0);
    if (const Json* object = object_schema(schema_of_part))
      form.add_members(*object, part(key), "/" + std::string(key), 1);
  }
  form.add_section("ranking", "", "", 0);
  for (const char* key : {"objective", "where"})
    form.add(key, all["properties"][key], document.contains(key) ? document[key] : Json(), "/" + std::string(key), 1);
  return form.list;
}

Json with_value(Json document, const FormField& field, const std::string& text) {
  if (!document.is_object()) document = Json::object();
  // Resizing a preset that stands by name turns it into {"preset": …, "devices": …}.
  if (field.pointer == "/cluster/devices" && document.contains("cluster") && document["cluster"].is_string())
    document["cluster"] = {{"preset", document["cluster"]}};
  const Json::json_pointer pointer(field.pointer);
  if (!text.empty()) {
    document[pointer] = parsed(field, text);
  } else if (document.contains(pointer)) {
    document[pointer.parent_pointer()].erase(pointer.back());
  }
  if (document.contains("cluster") && document["cluster"].is_object() && document["cluster"].size() == 1 &&
      document["cluster"].contains("preset"))
    document["cluster"] = Json(document["cluster"]["preset"]);
  return document;
}

Json with_cluster_expanded(Json document, const DataFolder& data) {
  if (!document.is_object() || !document.contains("cluster")) return document;
  if (const auto cluster = cluster_from(document["cluster"], "study", data)) document["cluster"] = to_json(*cluster);
  return document;
}

} // namespace foretrain::gui
