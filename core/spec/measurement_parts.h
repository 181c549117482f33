#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/spec/measurement.h"

/// Steps from a row to a plan, shared by the files that take them. Included by those only.
namespace foretrain {

using MaybeSkip = std::optional<Skip>;

[[nodiscard]] Skip missing(std::string column);

/// A setting that has no column; null when neither notes nor assumptions give it.
[[nodiscard]] const std::string* extra(const Measurement& row, const std::string& key);
[[nodiscard]] std::optional<int> extra_number(const Measurement& row, const std::string& key);
[[nodiscard]] std::optional<bool> extra_flag(const Measurement& row, const std::string& key);

/// The text as a number, when it is one and not negative.
[[nodiscard]] std::optional<int> whole(std::string_view text);

/// The row's sizes over what `model` has from a preset.
[[nodiscard]] MaybeSkip set_model(const Measurement& row, ModelSpec& model);

/// Degrees, schedule, sharding, recomputation and overlap. Batch, length and devices are stated.
[[nodiscard]] MaybeSkip set_layout(const Measurement& row, const MeasuredNames& names, const ModelSpec& model,
                                   const Semantics& semantics, Layout& layout);

} // namespace foretrain
