#include "core/spec/describe_plan.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {

Result<SearchSpace> read_space(const Json& json, const Where& where) {
  return read_value<SearchSpace>(json, where);
}
Json space_to_json(const SearchSpace& space) {
  return write_struct(space);
}
Json space_schema() {
  return schema_of<SearchSpace>();
}

Result<Objective> read_objective(const Json& json, const Where& where) {
  return read_value<Objective>(json, where);
}
std::vector<std::string> objective_ids() {
  return enum_ids<Objective>();
}

std::string_view id_of(Objective value) {
  return name_of(value);
}
std::string_view id_of(Evidence value) {
  return name_of(value);
}
std::string_view id_of(MemoryPart value) {
  return name_of(value);
}
std::string_view id_of(TimePart value) {
  return name_of(value);
}
std::string_view id_of(Verdict value) {
  return name_of(value);
}
std::string_view id_of(Engine value) {
  return name_of(value);
}
Result<Objective> objective_from(std::string_view text, const std::string& where) {
  return read_value<Objective>(Json(std::string(text)), Where{where, ""});
}
Result<Engine> engine_from(std::string_view text, const std::string& where) {
  return read_value<Engine>(Json(std::string(text)), Where{where, ""});
}

} // namespace foretrain
