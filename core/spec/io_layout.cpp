#include "core/spec/describe_layout.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {

Result<Layout> read_layout(const Json& json, const Where& where) {
  return read_value<Layout>(json, where);
}
Result<Layout> layout_from(const Json& json, const std::string& file) {
  return read_layout(json, Where{file, ""});
}
Json to_json(const Layout& layout) {
  return write_struct(layout);
}
Json layout_schema() {
  return schema_of<Layout>();
}

std::string_view id_of(ShardingKind value) {
  return name_of(value);
}
std::string_view id_of(ContextKind value) {
  return name_of(value);
}
std::string_view id_of(DispatchKind value) {
  return name_of(value);
}
std::string_view id_of(RecomputeKind value) {
  return name_of(value);
}
std::string_view id_of(RecomputeMethod value) {
  return name_of(value);
}
std::string_view id_of(RecomputeModule value) {
  return name_of(value);
}

} // namespace foretrain
