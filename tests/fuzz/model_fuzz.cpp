// A Hugging Face config.json or a ModelSpec: an error, or a model that reads back equal.
#include "core/base/json.h"
#include "core/spec/huggingface.h"
#include "core/spec/io.h"
#include "tests/fuzz/target.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const Result<Json> json = parse_json(fuzz::text_of(bytes, size), "input");
  if (!json) return 0;
  const Result<ModelSpec> model =
      is_huggingface_config(*json) ? read_huggingface(*json, "input") : model_from(*json, "input");
  if (!model) {
    fuzz::require(!to_string(model.error()).empty(), "an error says something");
    return 0;
  }
  const Result<ModelSpec> again = model_from(to_json(*model), "again");
  fuzz::require(again.has_value() && *again == *model, "a model that was read reads back equal");
  return 0;
}
