#include "core/spec/describe_model.h"
#include "core/spec/huggingface.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {

Result<ModelSpec> read_model(const Json& json, const Where& where) {
  if (!is_huggingface_config(json)) return read_value<ModelSpec>(json, where);
  FORETRAIN_TRY(const ModelSpec model, read_huggingface(json, where.file, where.pointer));
  // Ranges and cross-checks hold for what a foreign file says as well.
  return read_struct<ModelSpec>(write_struct(model), where);
}

Result<ModelSpec> model_from(const Json& json, const std::string& file) {
  return read_model(json, Where{file, ""});
}
Json to_json(const ModelSpec& model) {
  return write_struct(model);
}
Json model_schema() {
  return schema_of<ModelSpec>();
}

} // namespace foretrain
