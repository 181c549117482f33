#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

/// Constants that were fitted to whole training steps. Each is registered in data/fitted.json with its owner, meaning
/// and plausible range, so that they can be counted; the value stands in the owner's own file.
namespace foretrain::validation {

struct FittedConstant {
  std::string file;  ///< below data/
  std::string key;   ///< JSON pointer into it
  std::string owner; ///< "device h100-sxm-80gb", "framework megatron-deepspeed"
  std::string meaning;
  std::string fitted_to; ///< sources or groups, never held-out rows
  double low = 0;        ///< of the plausible range, in SI units for texts with a unit
  double high = 0;
  double value = 0; ///< read from the file
};

inline constexpr int kMostPerDevice = 5;
inline constexpr int kMostPerFramework = 1;

/// Errors: a register that does not read, a value that is not there, one at or beyond an end of its range (the model is
/// wrong there, not the constant), more constants than an owner may have.
[[nodiscard]] Result<std::vector<FittedConstant>> read_fitted_constants(const std::filesystem::path& data);

} // namespace foretrain::validation
