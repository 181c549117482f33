#pragma once

#include <string>
#include <string_view>

namespace foretrain::cli {

struct CommandHelp {
  std::string_view name; ///< empty: the program itself
  std::string summary;
  std::string footer; ///< worked examples
};

[[nodiscard]] const CommandHelp& help_of(std::string_view command);

} // namespace foretrain::cli
