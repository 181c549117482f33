#pragma once

#include <CLI/CLI.hpp>

namespace foretrain::cli {

/// Says what is wrong with the command line, and which command or flag may have been meant; the exit code.
[[nodiscard]] int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, const char* const* argv);

} // namespace foretrain::cli
