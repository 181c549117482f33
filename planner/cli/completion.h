#pragma once

#include <string>

#include "core/base/result.h"

namespace CLI {
class App;
}

namespace foretrain::cli {

/// A script that completes commands, options and files. Error: a shell that is not bash or zsh.
[[nodiscard]] Result<std::string> completion_script(const CLI::App& app, const std::string& shell);

} // namespace foretrain::cli
