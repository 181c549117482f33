#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/spec/measurement.h"

/// Rows of measurements made up for tests.
namespace foretrain::test {

[[nodiscard]] DataFolder data();
[[nodiscard]] std::string header();
/// A row with the given cells; the others are empty.
[[nodiscard]] std::string row(const std::map<std::string, std::string>& cells);
/// A complete dense run.
[[nodiscard]] std::map<std::string, std::string> dense();
[[nodiscard]] Measurement read(const std::map<std::string, std::string>& cells,
                               const std::vector<Assumption>& assumptions = {});
[[nodiscard]] tl::expected<MeasuredPlan, Skip> plan(const std::map<std::string, std::string>& cells);
/// Why `dense` with these changes is skipped; empty: it is not.
[[nodiscard]] std::string skipped(const std::map<std::string, std::string>& changes);

} // namespace foretrain::test
