#pragma once

#include <string>
#include <vector>

namespace foretrain::architecture {

struct RepositoryFile {
  std::string path; ///< relative to the repository's root, with '/'
  std::string text;
};

/// Every file of the source tree that is the project's own: no build folder, no hidden folder but .ci, nothing that was
/// left behind by a program (databases, Python's caches).
[[nodiscard]] std::vector<RepositoryFile> repository_files();

} // namespace foretrain::architecture
