#pragma once

#include <filesystem>

namespace foretrain::test {

/// The repository's root. Told by a function, not a macro on every command line, so that a compiler cache can share the
/// tests' objects between checkouts.
std::filesystem::path source_folder();

/// The folder of the build that the test belongs to; programs lie in its `bin`.
std::filesystem::path build_folder();

/// How many times slower the build's programs may be than optimised ones: a factor for limits of time
/// (tests/CMakeLists.txt).
int slowness();

} // namespace foretrain::test
