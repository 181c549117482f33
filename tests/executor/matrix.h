#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/spec/plan.h"

/// Which combinations of axes are run: a covering array.
namespace foretrain::executor_fixtures {

struct Option {
  std::string name;
  std::function<void(Plan&)> change;
};
struct Factor {
  std::string name;
  std::vector<Option> options; ///< the first one leaves the plan as it is
};
/// Models, degrees, schedules, sharding, recomputation, optimizers.
[[nodiscard]] std::vector<Factor> factors();

/// One option per factor.
using Row = std::vector<std::size_t>;
[[nodiscard]] std::string name_of(const Row& row);
[[nodiscard]] Plan plan_of(const Row& row);

struct Covering {
  std::vector<Row> rows;
  std::size_t covered = 0;    ///< combinations of `strength` options that stand in a row
  std::size_t impossible = 0; ///< that no plan found can have: refused by name, or more than eight ranks
};
/// Greedy: every combination of options of `strength` factors stands in at least one row, each row a plan that runs.
[[nodiscard]] Covering covering_array(std::size_t strength);

} // namespace foretrain::executor_fixtures
