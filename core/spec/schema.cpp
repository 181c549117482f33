#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {
namespace {

Json or_name(Json schema, const char* what) {
  return Json{{"anyOf", Json::array({Json{{"type", "string"}}, std::move(schema)})}, {"description", what}};
}

Json document(const char* title, const char* doc, Json properties, std::vector<std::string> required) {
  return Json{{"title", title},
              {"description", doc},
              {"type", "object"},
              {"properties", std::move(properties)},
              {"additionalProperties", false},
              {"required", std::move(required)}};
}

Json named_cluster_schema() {
  Json resized{{"type", "object"},
               {"properties",
                {{"preset", {{"type", "string"}}},
                 {"devices", {{"type", "integer"}, {"minimum", 1}, {"maximum", kMostDevices}}}}},
               {"additionalProperties", false},
               {"required", Json::array({"preset", "devices"})}};
  return Json{{"anyOf", Json::array({Json{{"type", "string"}}, std::move(resized), cluster_schema()})},
              {"description", "The cluster: an object, the name of a preset, {\"preset\": NAME, \"devices\": N}, or a "
                              "file beside this one."}};
}

constexpr const char* kModelDoc =
    "The model: an object, the name of a preset, or a file beside this one; a Hugging Face config.json is a model too.";

Json plan_schema() {
  return document("plan", "One way to run a job.",
                  {{"model", or_name(model_schema(), kModelDoc)},
                   {"cluster", named_cluster_schema()},
                   {"job", job_schema()},
                   {"layout", layout_schema()}},
                  {"model", "cluster", "job", "layout"});
}

Json study_schema() {
  return document(
      "study", "A job and the layouts to search.",
      {{"model", or_name(model_schema(), kModelDoc)},
       {"cluster", named_cluster_schema()},
       {"job", job_schema()},
       {"space", space_schema()},
       {"objective", {{"enum", objective_ids()}, {"description", "What is best."}, {"default", "step-time"}}},
       {"where", {{"type", "string"}, {"description", "Filter over fields; empty = all layouts."}, {"default", ""}}}},
      {"model", "cluster", "job"});
}

/// The object behind a "name or object" or "kind or object"; null for anything else.
const Json* object_in(const Json& schema) {
  if (schema.contains("properties") && schema.contains("title")) return &schema;
  if (schema.contains("items")) return object_in(schema["items"]);
  if (schema.contains("anyOf"))
    for (const Json& choice : schema["anyOf"])
      if (const Json* found = object_in(choice)) return found;
  return nullptr;
}

std::string type_text(const Json& schema) {
  if (const Json* object = object_in(schema); object && schema.value("type", "") != "array") {
    const std::string title = (*object)["title"];
    return fmt::format("[{0}](#{0})", title);
  }
  if (schema.contains("enum")) {
    std::string text;
    for (const Json& id : schema["enum"]) text += (text.empty() ? "`" : ", `") + id.get<std::string>() + "`";
    return text;
  }
  const std::string type = schema.value("type", "");
  if (type == "array") {
    std::string text = "list of " + type_text(schema["items"]);
    if (schema.contains("minItems")) text = fmt::format("{} ({} of them)", text, schema["minItems"].get<int>());
    return text;
  }
  if (type == "object") return "object of " + type_text(schema["additionalProperties"]);
  if (type == "string")
    return schema.contains("examples") ? "text with unit, `" + schema["examples"][0].get<std::string>() + "`" : "text";
  if (type == "boolean") return "true or false";
  return type == "integer" ? "whole number" : type;
}

std::string range_text(const Json& schema) {
  const Json& numbers = schema.contains("items") ? schema["items"] : schema;
  const bool low = numbers.contains("minimum");
  const bool high = numbers.contains("maximum");
  if (low && high)
    return fmt::format("{:g} … {:g}", numbers["minimum"].get<double>(), numbers["maximum"].get<double>());
  if (low) return fmt::format("at least {:g}", numbers["minimum"].get<double>());
  return high ? fmt::format("at most {:g}", numbers["maximum"].get<double>()) : "";
}

/// A bar would end a table cell.
std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

void append_section(const Json& schema, std::vector<std::string>& done, std::string& page) {
  const std::string title = schema["title"];
  if (std::find(done.begin(), done.end(), title) != done.end()) return;
  done.push_back(title);
  page += fmt::format("\n## {}\n\n{}\n\n| key | type | range | default | meaning |\n| --- | --- | --- | --- | --- |\n",
                      title, schema["description"].get<std::string>());
  std::vector<std::string> required;
  if (schema.contains("required")) required = schema["required"].get<std::vector<std::string>>();
  for (const auto& [key, property] : schema["properties"].items()) {
    const bool needed = std::find(required.begin(), required.end(), key) != required.end();
    const std::string standard = needed                         ? "required"
                                 : property.contains("default") ? "`" + property["default"].dump() + "`"
                                                                : "";
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", key, cell(type_text(property)), range_text(property),
                        cell(standard), cell(property.value("description", "")));
  }
  for (const auto& [key, property] : schema["properties"].items())
    if (const Json* inner = object_in(property)) append_section(*inner, done, page);
}

} // namespace

std::vector<std::string> schema_names() {
  return {"model", "device", "cluster", "job", "layout", "semantics", "plan", "study"};
}

Result<Json> schema(const std::string& name) {
  Json schema;
  if (name == "model")
    schema = model_schema();
  else if (name == "device")
    schema = device_schema();
  else if (name == "cluster")
    schema = cluster_schema();
  else if (name == "job")
    schema = job_schema();
  else if (name == "layout")
    schema = layout_schema();
  else if (name == "semantics")
    schema = semantics_schema();
  else if (name == "plan")
    schema = plan_schema();
  else if (name == "study")
    schema = study_schema();
  else
    return fail("schema", "'" + name + "' is unknown", hint_for(name, schema_names()));
  Json document{{"$schema", "https://json-schema.org/draft/2020-12/schema"}};
  document.update(schema);
  return document;
}

std::string reference_page() {
  std::string page = "# File formats\n\n"
                     "Made from the descriptions that read and write the files (`foretrain schema NAME` prints the "
                     "same as JSON Schema);\n"
                     "do not edit by hand.\n\n"
                     "Files are JSON; comments (`//` and `/* */`) are allowed. An unknown key is an error that names "
                     "the nearest known\n"
                     "one. Quantities are text with their unit. A choice (`schedule`, `sharding`, …) is an object with "
                     "a `kind`, or the\n"
                     "kind alone; a key of another kind is an error. A key that is left out has its default; where no "
                     "default is shown,\n"
                     "it is unknown or does not apply.\n";
  std::vector<std::string> done;
  for (const Json& whole : {plan_schema(), study_schema(), device_schema(), semantics_schema()})
    append_section(whole, done, page);
  return page;
}

} // namespace foretrain
