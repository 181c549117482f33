#pragma once

#include <string>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/model.h"

namespace foretrain {

/// True when the object looks like a Hugging Face config.json (`model_type` or `architectures`).
[[nodiscard]] bool is_huggingface_config(const Json& json);

/// The model that a config.json describes: absent keys take the class defaults of its architecture, nested text
/// configurations are followed, towers whose formula is known are noted with their size. Errors: an architecture
/// without a formula (by name), a key of the wrong type, a missing key without a default.
/// `pointer`: where the object stands inside the file, for errors.
[[nodiscard]] Result<ModelSpec> read_huggingface(const Json& json, const std::string& file,
                                                 const std::string& pointer = {});

/// Values of `model_type` that have a formula.
[[nodiscard]] std::vector<std::string> huggingface_architectures();

} // namespace foretrain
