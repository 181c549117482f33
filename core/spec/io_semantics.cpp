#include "core/spec/describe_semantics.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {

Result<Semantics> semantics_from(const Json& json, const std::string& file) {
  return read_value<Semantics>(json, Where{file, ""});
}
Json to_json(const Semantics& semantics) {
  return write_struct(semantics);
}
Json semantics_schema() {
  return schema_of<Semantics>();
}

} // namespace foretrain
