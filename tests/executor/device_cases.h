#pragma once

#include <vector>

#include "tests/executor/fixtures.h"
#include "tests/executor/matrix.h"

/// What must be equal on a device that is not the host's processor: on a GPU, and on the host with what a GPU's ranks
/// do (tensor_device.h). `besides` names the device; one process on the host is what is right.
namespace foretrain::executor_fixtures {

/// Each model of the fixtures on one rank, in double.
void expect_models_equal(const Besides& besides);
/// Each optimizer, its state on the device and on the host; gradients that are clipped and that are not.
void expect_optimizers_equal(const Besides& besides);
/// Rows of the matrix (every pair of options) for at most so many ranks.
[[nodiscard]] std::vector<Row> rows_for(int most_ranks);
/// Single precision, and half precision for one step, with the bounds of layouts.
void expect_lower_precisions_equal(const Besides& besides);

} // namespace foretrain::executor_fixtures
