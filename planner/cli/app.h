#pragma once

namespace foretrain::cli {

/// The whole program: reads the arguments, runs one command, returns the exit code (docs/cli.md). No exception leaves.
[[nodiscard]] int run(int argc, const char* const* argv);

} // namespace foretrain::cli
