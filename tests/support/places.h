#pragma once

#include <filesystem>

namespace foretrain::test {

/// The repository's root. Told by a function, not a macro on every command line, so that a compiler cache can share the
/// tests' objects between checkouts.
std::filesystem::path source_folder();

/// The folder of the build that the test belongs to; programs lie in its `bin`.
std::filesystem::path build_folder();

} // namespace foretrain::test
