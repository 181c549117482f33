#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/spec/presets.h"

/// Collectives against the measured tables that they are read from, with a part of each table left out.
namespace foretrain::validation {

struct CollectiveErrors {
  std::string device;
  std::vector<double> sizes;  ///< |predicted / measured − 1| in percent at every second size, left out
  std::vector<double> counts; ///< the same at one number of devices per collective, left out
};

/// One entry per device with measured tables. Between the first and last size every second one is left out; of three or
/// more numbers of devices in a node the middle one, of two the larger one. Errors: the data folder.
[[nodiscard]] Result<std::vector<CollectiveErrors>> judge_collectives(const DataFolder& data);

/// The share-th of the values, which need not be sorted; 0 of none.
[[nodiscard]] double nearest_rank(std::vector<double> values, double share);

} // namespace foretrain::validation
