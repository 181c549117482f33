#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/spec/model.h"

namespace foretrain::testing {

/// A row of param_counts.csv: published parameter totals (`other.check` says how each was checked). Sources per row:
/// totals of the Hugging Face API, model cards, papers.
struct ParameterRow {
  std::string model;
  std::string config; ///< file in configs/: the same model as a config.json
  ModelSpec spec;     ///< built from the columns
  std::int64_t total = 0;
  std::int64_t active = 0;
  Json other;
};

[[nodiscard]] std::vector<ParameterRow> parameter_rows();
[[nodiscard]] std::string test_folder(); ///< tests/core/spec of the source tree

} // namespace foretrain::testing
